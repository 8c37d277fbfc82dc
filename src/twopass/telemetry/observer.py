"""Work while it happens in, nothing out: what metrics and traces have in common, and the one that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Protocol

from twopass.errors import Code
from twopass.job import Result


class Meter(Protocol):
    """Told of work; the contexts last as long as the work, on its task."""

    def job(self, job_id: str) -> AbstractContextManager[None]: ...

    def page(self, number: int) -> AbstractContextManager[None]: ...

    def stage(self, name: str) -> AbstractContextManager[None]: ...

    def ended(self, result: Result) -> None: ...

    def refused(self, code: Code) -> None:
        """A job that ended with a code and without a result."""


class Silent:
    """Keeps nothing."""

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return nullcontext()

    def page(self, number: int) -> AbstractContextManager[None]:
        return nullcontext()

    def stage(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def ended(self, result: Result) -> None: ...

    def refused(self, code: Code) -> None: ...


class Several:
    """Each of them is told."""

    def __init__(self, *meters: Meter) -> None:
        self._meters = meters

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return self._all(lambda meter: meter.job(job_id))

    def page(self, number: int) -> AbstractContextManager[None]:
        return self._all(lambda meter: meter.page(number))

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._all(lambda meter: meter.stage(name))

    def ended(self, result: Result) -> None:
        for meter in self._meters:
            meter.ended(result)

    def refused(self, code: Code) -> None:
        for meter in self._meters:
            meter.refused(code)

    @contextmanager
    def _all(self, entered: Callable[[Meter], AbstractContextManager[None]]) -> Iterator[None]:
        with ExitStack() as stack:
            for meter in self._meters:
                stack.enter_context(entered(meter))
            yield

"""Work while it happens in, nothing out: what metrics and traces have in common, and the one that nobody asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Protocol

from twopass.errors import Code
from twopass.job import Result


class Observer(Protocol):
    """Told of work; the contexts last as long as the work, on its task."""

    def job(self, job_id: str) -> AbstractContextManager[None]: ...

    def page(self, number: int) -> AbstractContextManager[None]: ...

    def stage(self, name: str) -> AbstractContextManager[None]: ...

    def ended(self, result: Result) -> None: ...

    def refused(self, code: Code) -> None:
        """A job that ended with a code and without a result."""


class NullObserver:
    """Keeps nothing."""

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return nullcontext()

    def page(self, number: int) -> AbstractContextManager[None]:
        return nullcontext()

    def stage(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def ended(self, result: Result) -> None: ...

    def refused(self, code: Code) -> None: ...


class CompositeObserver:
    """Each of them is told."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return self._all(lambda observer: observer.job(job_id))

    def page(self, number: int) -> AbstractContextManager[None]:
        return self._all(lambda observer: observer.page(number))

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._all(lambda observer: observer.stage(name))

    def ended(self, result: Result) -> None:
        for observer in self._observers:
            observer.ended(result)

    def refused(self, code: Code) -> None:
        for observer in self._observers:
            observer.refused(code)

    @contextmanager
    def _all(self, entered: Callable[[Observer], AbstractContextManager[None]]) -> Iterator[None]:
        with ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(entered(observer))
            yield

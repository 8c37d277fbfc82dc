"""The Observer protocol, which metrics and traces implement, and an observer that passes everything on to several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from twopass.errors import Code
from twopass.result import Result


class Observer(Protocol):
    """Notified of jobs, pages and stages. Each context lasts as long as the work and is entered on its task."""

    def job(self, job_id: str) -> AbstractContextManager[None]: ...

    def page(self, number: int) -> AbstractContextManager[None]: ...

    def stage(self, name: str) -> AbstractContextManager[None]: ...

    def job_ended(self, result: Result) -> None: ...

    def job_refused(self, code: Code) -> None:
        """A job ended with an error code and without a result."""


class CompositeObserver:
    """Passes everything on to several observers, or to none."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    def job(self, job_id: str) -> AbstractContextManager[None]:
        return self._enter_all(lambda observer: observer.job(job_id))

    def page(self, number: int) -> AbstractContextManager[None]:
        return self._enter_all(lambda observer: observer.page(number))

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self._enter_all(lambda observer: observer.stage(name))

    def job_ended(self, result: Result) -> None:
        for observer in self._observers:
            observer.job_ended(result)

    def job_refused(self, code: Code) -> None:
        for observer in self._observers:
            observer.job_refused(code)

    @contextmanager
    def _enter_all(self, open_context: Callable[[Observer], AbstractContextManager[None]]) -> Iterator[None]:
        with ExitStack() as stack:
            for observer in self._observers:
                stack.enter_context(open_context(observer))
            yield

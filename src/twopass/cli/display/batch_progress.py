"""Count the files and pages of a batch by folder."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from twopass.cli.display.reporters import BarState
from twopass.telemetry.progress import Listener, Phase, Progress

File = TypeVar("File", bound=Hashable)


@dataclass(frozen=True)
class FolderProgress:
    """How far a folder is. `share` counts finished files as 1 and others by the share of their pages.

    `parts` are those of files whose pages are all read, and which are written now.
    """

    name: str
    files_total: int = 0
    files_done: int = 0
    pages_done: int = 0
    share: float = 0.0
    parts_done: int = 0
    parts_total: int = 0

    @property
    def is_done(self) -> bool:
        return self.files_done == self.files_total

    def as_bar(self) -> BarState:
        counts = {"files_done": self.files_done, "files_total": self.files_total, "pages_done": self.pages_done}
        note = f"{self.files_done}/{self.files_total} files, {self.pages_done} pages"
        if self.parts_total:
            counts |= {"parts_done": self.parts_done, "parts_total": self.parts_total}
            note += f", writing {self.parts_done}/{self.parts_total}"
        return BarState(self.name, 1.0 if self.is_done else self.share / self.files_total, note, counts)


class BatchProgress(Generic[File]):
    """The progress of all files, each counted in the folder that `folders` names for it.

    It is changed on one thread; its counts may be read on any.
    """

    def __init__(self, folders: Mapping[File, str], on_change: Callable[[BarState], None]) -> None:
        self._folder_of = folders
        self._on_change = on_change
        self._files: dict[File, Progress] = {}  # of files that were started
        self._folders: dict[str, FolderProgress] = {}
        for name in folders.values():
            folder = self._folders.get(name, FolderProgress(name))
            self._folders[name] = replace(folder, files_total=folder.files_total + 1)

    @property
    def pages_done(self) -> int:
        return sum(progress.pages_done for progress in list(self._files.values()))

    @property
    def pages_counted(self) -> int:
        return sum(progress.pages_total for progress in list(self._files.values()))

    def start(self, file: File) -> Listener:
        """Return the listener for the progress of a file that starts now."""
        self._update(file, Progress())
        return lambda now: self._update(file, now)

    def finish(self, file: File) -> None:
        self._update(file, replace(self._files[file], percent=100.0, phase=Phase.DONE), files_done=1)

    def _update(self, file: File, now: Progress, files_done: int = 0) -> None:
        before = self._files.get(file, Progress())
        self._files[file] = now
        folder = self._folders[self._folder_of[file]]
        (done_before, total_before), (done, total) = _count_parts(before), _count_parts(now)
        self._folders[folder.name] = folder = replace(
            folder,
            files_done=folder.files_done + files_done,
            pages_done=folder.pages_done + now.pages_done - before.pages_done,
            share=folder.share + (now.percent - before.percent) / 100,
            parts_done=folder.parts_done + done - done_before,
            parts_total=folder.parts_total + total - total_before,
        )
        self._on_change(folder.as_bar())


def _count_parts(now: Progress) -> tuple[int, int]:
    return (now.parts_done, now.parts_total) if now.phase is Phase.ASSEMBLING else (0, 0)

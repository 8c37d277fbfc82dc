"""One document's folder in the output, and the names of the files in it."""

from __future__ import annotations

from dataclasses import dataclass

from twopass.storage.store import Store, uri_of

MANIFEST = "manifest.json"
CHECKPOINTS = "pages/"


@dataclass(frozen=True)
class DocumentFolder:
    """The keys of a store that begin with the document's id."""

    store: Store
    document_id: str

    def key(self, name: str) -> str:
        return f"{self.document_id}/{name}"

    def uri(self, name: str) -> str:
        return uri_of(self.store, self.key(name))

    async def list_names(self) -> frozenset[str]:
        """The names of all files in the folder."""
        prefix = self.key("")
        return frozenset(key.removeprefix(prefix) for key in await self.store.keys(prefix))


def page_name(number: int) -> str:
    """The name of a page's checkpoint."""
    return f"{CHECKPOINTS}{number:04d}.json"


def crop_name(element_id: str) -> str:
    return f"images/{element_id}.png"


def preview_name(number: int) -> str:
    """The name of a page's picture in the review page."""
    return f"review/p{number:04d}.webp"


def thumbnail_name(number: int) -> str:
    """The name of a page's small picture, which `twopass serve` shows while the job runs."""
    return f"thumbnails/p{number:04d}.webp"

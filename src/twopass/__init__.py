"""Read PDFs and page images into DocJSON and markdown, every page in two passes.

    from twopass import read
    document = read("file.pdf")
    print(document.markdown)

The names are imported at their first use: vLLM's processes import this package, too, and must stay light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from twopass.version import VERSION as __version__

if TYPE_CHECKING:
    from twopass.api.document import Document
    from twopass.api.functions import read, read_pages, submit
    from twopass.job import Job
    from twopass.settings import Settings

__all__ = ["Document", "Job", "Settings", "__version__", "read", "read_pages", "submit"]

_MODULES = {
    "Document": "twopass.api.document",
    "Job": "twopass.job",
    "Settings": "twopass.settings",
    "read": "twopass.api.functions",
    "read_pages": "twopass.api.functions",
    "submit": "twopass.api.functions",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

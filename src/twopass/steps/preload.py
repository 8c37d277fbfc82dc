"""What page workers import before their first call, so that the first pages of a job need not wait for it.

A name is that of a module or, as `module:function`, of a function. The first one is loaded before any call.
"""

from __future__ import annotations

from collections.abc import Mapping

from twopass.families.interface import Family

MUPDF = "twopass.pages.source_files:import_mupdf"
# What each engine's calls need. Importing PyMuPDF loads its layout model, too, which only the cpu engine uses.
ENGINES: Mapping[str, tuple[str, ...]] = {
    "cpu": ("twopass.engines.cpu.layout_regions:load_layout_model", "twopass.engines.cpu.page"),
    "openai": (MUPDF, "twopass.engines.openai.request"),
    "vllm": (MUPDF, "twopass.engines.vllm.images"),
}
FETCHING = ("twopass.steps.fetch", "twopass.steps.render", "PIL.ImageOps")
READING = (
    "twopass.steps.pass1", "twopass.steps.enrich", "yake", "twopass.steps.document_folder", "PIL.Image:preinit",
    "twopass.steps.pass2", "twopass.steps.unread_regions", "PIL.WebPImagePlugin",
)  # fmt: skip


def list_names(engine_kind: str, family: Family) -> tuple[str, ...]:
    """What page workers import for an engine of this kind and this family, in the order in which calls need it."""
    engine = ENGINES.get(engine_kind, (MUPDF,))
    return (engine[0], *FETCHING, *engine[1:], type(family).__module__, *READING)

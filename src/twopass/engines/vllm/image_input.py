"""How an image becomes a model's input: the interface between the engine and the two ways in which that is done.

`tiled_image` cuts an image into views (DeepSeek-OCR and Unlimited-OCR), `crop_image` resizes it (region readers).
"""

from __future__ import annotations

from typing import Any, Protocol

from twopass.engines.interface import Prompt
from twopass.pages.shared_pixels import PixelBuffer
from twopass.runtime.page_pool import PagePool


class PlannedImage(Protocol):
    """One prompt's image, of which the size is known: `nbytes` in a buffer, and `tokens` in the prompt."""

    @property
    def nbytes(self) -> int: ...

    @property
    def tokens(self) -> int: ...

    async def write(self, buffer: PixelBuffer, page_pool: PagePool) -> None:
        """Let a page worker write the image into a shared buffer, as the model reads it there."""
        ...

    def build_item(self, buffer: PixelBuffer) -> Any:
        """The item with which vLLM carries a reference to the buffer to the model."""
        ...


class ImageInput(Protocol):
    """What a model makes of images. `max_nbytes` and `max_tokens` are those of the largest image."""

    @property
    def max_nbytes(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def precision(self) -> str:
        """What changes answers, for a document's identity; empty for the official way."""
        ...

    def plan(self, prompt: Prompt) -> PlannedImage | None:
        """How this prompt's image is written; None if the model does not have the prompt's mode."""
        ...

    def tokenize(self, tokenizer: Any, text: str) -> tuple[list[int], int, list[int]]:
        """Token ids before the image, the image token, and ids after it."""
        ...

"""The size at which a reader sees a crop: sides of a multiple, within limits of pixels and of aspect."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ResizeRule:
    """Sides are multiples of `multiple`; the picture has between `least` and `most` pixels."""

    multiple: int
    least: int
    most: int
    max_aspect: float = 200.0

    def apply(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that the model sees; a crop that is too long for its width is shortened to the limit."""
        width, height = max(width, 1), max(height, 1)
        width = min(width, math.floor(height * self.max_aspect))
        height = min(height, math.floor(width * self.max_aspect))
        scale = max(1.0, self.multiple / width, self.multiple / height)
        across, down = (
            max(self.multiple, round(side * scale / self.multiple) * self.multiple) for side in (width, height)
        )
        if across * down > self.most:
            factor = math.sqrt(width * height * scale * scale / self.most)
            across, down = (self._floor(side * scale / factor) for side in (width, height))
        elif across * down < self.least:
            factor = math.sqrt(self.least / (width * height * scale * scale))
            across, down = (
                math.ceil(side * scale * factor / self.multiple) * self.multiple for side in (width, height)
            )
        return across, down

    def _floor(self, side: float) -> int:
        return max(self.multiple, math.floor(side / self.multiple) * self.multiple)

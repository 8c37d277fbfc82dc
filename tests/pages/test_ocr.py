"""Lines of scans: tiles of very long pages."""

from __future__ import annotations

import numpy as np

from twopass.pages import ocr


def test_a_very_long_scan_is_split_into_tiles() -> None:
    """The detector enlarges short sides, so a till roll read as a whole would need gigabytes."""
    array = np.full((4000, 200, 3), 255, np.uint8)
    tiles = list(ocr.split_tiles(array))

    assert sum(tile.shape[0] for _, tile in tiles) == 4000
    assert max(tile.shape[0] for _, tile in tiles) <= ocr.TILE_ASPECT * 200

"""All families by name."""

from __future__ import annotations

from dataclasses import replace

from twopass.families.deepseek.family import (
    CROP_MODES,
    DEEPSEEK_OCR,
    DEEPSEEK_OCR_2,
    SMALL_CROP_MODES,
    DeepseekOcrFamily,
)
from twopass.families.instructed import DEEPSEEK_OCR_JSON
from twopass.families.interface import CropRange, Family
from twopass.families.layout.family import LayoutFamily
from twopass.families.regions.family import RegionFamily
from twopass.families.regions.reader import GLM_OCR, PADDLEOCR_VL
from twopass.families.unlimited.family import UNLIMITED_OCR, UnlimitedOcrFamily

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        *(LayoutFamily(), DEEPSEEK_OCR, DEEPSEEK_OCR_2, DEEPSEEK_OCR_JSON, UNLIMITED_OCR),
        *(RegionFamily(GLM_OCR), RegionFamily(PADDLEOCR_VL)),
    )
}


def get_family(
    name: str,
    small_crops: bool = False,
    max_tiles: int | None = None,
    structure: str = "auto",
    layer_text: bool = False,
) -> Family:
    """Return the family of that name; raises KeyError for an unknown one.

    With `small_crops`, DeepSeek-OCR gets crops of up to 640 pixels at that size. `max_tiles` are the most tiles of an
    image that Unlimited-OCR gets. `structure` is what finds the regions of a page. With `layer_text`, regions that a
    layout detector found take the words of a complete text layer. Other families are unchanged.
    """
    family = FAMILIES[name]
    if layer_text and isinstance(family, RegionFamily):
        return replace(family, use_layer=True)
    if max_tiles and isinstance(family, UnlimitedOcrFamily):
        return replace(family, crops=CropRange(min(family.crops.default, max_tiles), max_tiles))
    if small_crops and isinstance(family, DeepseekOcrFamily) and family.crop_modes is CROP_MODES:
        return replace(family, crop_modes=SMALL_CROP_MODES)
    return family

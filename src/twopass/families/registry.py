"""All families by name."""

from __future__ import annotations

from twopass.detection.structure import Structure
from twopass.errors import Code, InvalidSetting
from twopass.families.deepseek.family import DEEPSEEK_OCR, DEEPSEEK_OCR_2
from twopass.families.instructed import DEEPSEEK_OCR_JSON
from twopass.families.interface import Family, FamilyOptions
from twopass.families.layout.family import LayoutFamily
from twopass.families.regions.family import REGION_FAMILIES
from twopass.families.unlimited.family import UNLIMITED_OCR

_KNOWN: tuple[Family, ...] = (
    LayoutFamily(),
    DEEPSEEK_OCR,
    DEEPSEEK_OCR_2,
    DEEPSEEK_OCR_JSON,
    UNLIMITED_OCR,
    *REGION_FAMILIES,
)
FAMILIES: dict[str, Family] = {family.name: family for family in _KNOWN}


def get_family(
    name: str,
    small_crops: bool = False,
    max_tiles: int | None = None,
    structure: str = Structure.AUTO,
    layer_text: bool = False,
) -> Family:
    """Return the family of that name with these options (see FamilyOptions).

    Raises InvalidSetting for an unknown name, and for a structure that the family does not support.
    """
    if name not in FAMILIES:
        message = f"unknown family {name}; OPENAI_FAMILY is one of {', '.join(FAMILIES)}"
        raise InvalidSetting(Code.INVALID_SETTING, message)
    return FAMILIES[name].configure(FamilyOptions(small_crops, max_tiles, Structure(structure), layer_text))

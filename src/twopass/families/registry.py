"""All families by name."""

from __future__ import annotations

from twopass.families.deepseek.family import DEEPSEEK_OCR, DEEPSEEK_OCR_2
from twopass.families.instructed import DEEPSEEK_OCR_JSON
from twopass.families.interface import Family
from twopass.families.layout.family import LayoutFamily

FAMILIES: dict[str, Family] = {
    family.name: family for family in (LayoutFamily(), DEEPSEEK_OCR, DEEPSEEK_OCR_2, DEEPSEEK_OCR_JSON)
}


def get_family(name: str) -> Family:
    """Return the family of that name; raises KeyError for an unknown one."""
    return FAMILIES[name]

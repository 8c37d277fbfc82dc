"""What to ask a line of models and how to read its answers, by the family's name."""

from __future__ import annotations

from twopass.families.deepseek.family import DEEPSEEK_OCR, DEEPSEEK_OCR_2
from twopass.families.instructed import DEEPSEEK_OCR_JSON
from twopass.families.interface import Family
from twopass.families.layout import LayoutFamily

FAMILIES: dict[str, Family] = {
    family.name: family for family in (LayoutFamily(), DEEPSEEK_OCR, DEEPSEEK_OCR_2, DEEPSEEK_OCR_JSON)
}


def named(name: str) -> Family:
    return FAMILIES[name]

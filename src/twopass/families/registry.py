"""All families by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twopass.errors import Code, InvalidSetting
from twopass.families.deepseek import DeepseekOcrFamily
from twopass.families.instructed import InstructedFamily
from twopass.families.interface import Family, FamilyOptions
from twopass.families.layout.family import LayoutFamily
from twopass.families.regions.family import RegionFamily
from twopass.families.regions.reader import READERS
from twopass.families.unlimited import UnlimitedOcrFamily
from twopass.models import MODELS, Model

_OF_MODELS: Mapping[str, Callable[[Model], Family]] = {  # by the family that a model's row names
    "deepseek": DeepseekOcrFamily,
    "unlimited": UnlimitedOcrFamily,
    **dict.fromkeys(READERS, RegionFamily),
}
_KNOWN: tuple[Family, ...] = (
    LayoutFamily(),
    *(_OF_MODELS[model.family](model) for model in MODELS.values()),
    InstructedFamily(),
)
FAMILIES: dict[str, Family] = {family.name: family for family in _KNOWN}


def get_family(name: str, options: FamilyOptions | None = None, named_by: str = "family") -> Family:
    """The family of that name with these options; `named_by` is the setting or the field that names it.

    Raises InvalidSetting for an unknown name, and for a structure that the family does not support.
    """
    if name not in FAMILIES:
        raise InvalidSetting(
            Code.INVALID_SETTING, f"{named_by}: unknown family {name}; it is one of {', '.join(FAMILIES)}"
        )
    return FAMILIES[name].configure(options or FamilyOptions())

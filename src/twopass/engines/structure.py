"""What finds the regions of a page: the model that reads it, or a layout detector in front of the model."""

from __future__ import annotations

from twopass.errors import Code, InvalidSetting
from twopass.models import Structure, find_model, resolve_structure
from twopass.settings import Settings


def choose(settings: Settings) -> Structure:
    """What finds regions with the engine of these settings; raises InvalidSetting if they do not fit together.

    Recorded answers hold the detections, so that engine replay needs no detector.
    """
    if settings.engine == "replay":
        return Structure.MODEL
    if settings.engine == "openai":
        return resolve_structure(settings.structure, settings.openai_family)
    if settings.engine != "cpu":
        find_model(settings.model)  # a misspelt MODEL is reported as such
        return resolve_structure(settings.structure, settings.model)
    if settings.structure in (Structure.AUTO, Structure.MODEL):
        return Structure.MODEL
    message = f"STRUCTURE={settings.structure} does not fit ENGINE=cpu, which has a layout model of its own"
    raise InvalidSetting(Code.INVALID_SETTING, f"{message}: set STRUCTURE=auto, or another ENGINE")

"""What finds the regions of a page: the model that reads it, or a layout detector in front of the model.

The image's build imports this file, too, so that it needs no library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from twopass.detection.structure import Structure
from twopass.engines import weights
from twopass.engines.weights import Weights
from twopass.errors import Code, InvalidSetting

if TYPE_CHECKING:
    from twopass.settings import Settings


def resolve(structure: str, family: str) -> Structure:
    """Return what `structure` means for a family, never AUTO; raises InvalidSetting if they do not fit together.

    Families without weights of their own, such as that of the cpu engine, find regions themselves.
    """
    if structure not in set(Structure):
        message = f"unknown structure {structure}; STRUCTURE is one of {', '.join(Structure)}"
        raise InvalidSetting(Code.INVALID_SETTING, message)
    wanted, known = Structure(structure), weights.MODELS.get(family)
    if known and known.reads_regions:
        if wanted in (Structure.AUTO, Structure.DETECTOR):
            return Structure.DETECTOR
        advice = "it reads single regions and needs the layout detector in front of it: set STRUCTURE=detector or auto"
        raise InvalidSetting(Code.INVALID_SETTING, f"STRUCTURE={wanted} does not fit {family}: {advice}")
    if wanted in (Structure.AUTO, Structure.MODEL):
        return Structure.MODEL
    if known:
        return wanted
    advice = "it finds regions itself and cannot read those of the layout detector: set STRUCTURE=auto"
    raise InvalidSetting(Code.INVALID_SETTING, f"STRUCTURE={wanted} does not fit {family}: {advice}")


def choose(settings: Settings) -> Structure:
    """Return what finds regions with the engine of these settings; raises InvalidSetting if they do not fit together.

    Recorded answers hold the detections, so that engine replay needs no detector.
    """
    if settings.engine == "replay":
        return Structure.MODEL
    if settings.engine == "openai":
        return resolve(settings.structure, settings.openai_family)
    if settings.engine != "cpu":
        weights.look_up(settings.model)  # a misspelt MODEL is reported as such
        return resolve(settings.structure, settings.model)
    if settings.structure in (Structure.AUTO, Structure.MODEL):
        return Structure.MODEL
    message = f"STRUCTURE={settings.structure} does not fit ENGINE=cpu, which has a layout model of its own"
    raise InvalidSetting(Code.INVALID_SETTING, f"{message}: set STRUCTURE=auto, or another ENGINE")


def list_weights(model: str, structure: str = Structure.AUTO) -> Mapping[str, Weights]:
    """Return the weights that a model needs, by the name of their folder; raises InvalidSetting."""
    found = {model: weights.look_up(model)}
    if model in weights.DETECTORS:
        return found
    if resolve(structure, model) is not Structure.MODEL:
        found[weights.DETECTOR] = weights.look_up(weights.DETECTOR)
    return found

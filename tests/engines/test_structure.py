"""What finds the regions of a page, by the model and STRUCTURE, and which combinations are refused."""

from __future__ import annotations

from typing import get_args

import pytest

from twopass.engines import structure
from twopass.errors import Code, InvalidSetting
from twopass.families.registry import FAMILIES
from twopass.models import DETECTOR, MODELS, Structure, list_weights, resolve_structure
from twopass.settings import Settings

READS = {
    "deepseek_ocr": Structure.MODEL,
    "unlimited_ocr": Structure.MODEL,
    "glm_ocr": Structure.DETECTOR,
    "paddleocr_vl": Structure.DETECTOR,
}


def test_the_settings_accept_exactly_the_structures() -> None:
    """A value that the engines know can be set, and no other."""
    assert set(get_args(Settings.model_fields["structure"].annotation)) == set(Structure)


@pytest.mark.parametrize(("model", "expected"), READS.items())
def test_by_default_only_models_that_read_regions_have_a_detector(model: str, expected: Structure) -> None:
    """Who sets nothing gets what the model was made for."""
    assert resolve_structure("auto", model) is expected


@pytest.mark.parametrize("wanted", ["model", "detector", "fallback"])
def test_models_that_read_pages_may_have_a_detector(wanted: str) -> None:
    """DeepSeek-OCR and Unlimited-OCR find regions themselves, and can also read those of the detector."""
    for model in (name for name, model in MODELS.items() if not model.reads_regions):
        assert resolve_structure(wanted, model) == wanted


@pytest.mark.parametrize(
    ("wanted", "family", "advice"),
    [
        ("model", "glm_ocr", "set STRUCTURE=detector or auto"),
        ("fallback", "paddleocr_vl", "set STRUCTURE=detector or auto"),
        ("detector", "deepseek_ocr_json", "set STRUCTURE=auto"),
        ("fallback", "layout", "set STRUCTURE=auto"),
        ("both", "deepseek_ocr", "STRUCTURE is one of auto, model, detector, fallback"),
    ],
)
def test_what_does_not_fit_together_is_refused(wanted: str, family: str, advice: str) -> None:
    """The error names the setting, its value and what to set instead."""
    with pytest.raises(InvalidSetting) as caught:
        resolve_structure(wanted, family)

    assert caught.value.code is Code.INVALID_SETTING
    assert wanted in caught.value.message and advice in caught.value.message


def test_every_family_has_a_structure() -> None:
    """The default fits each family, so that a worker can be opened with it."""
    for family in FAMILIES:
        assert resolve_structure("auto", family) in (Structure.MODEL, Structure.DETECTOR)


@pytest.mark.parametrize(
    ("expected", "fields"),
    [
        ("model", {}),
        ("model", {"engine": "cpu", "structure": "model"}),
        ("model", {"engine": "vllm"}),
        ("detector", {"engine": "vllm", "model": "glm_ocr"}),
        ("fallback", {"engine": "hf", "structure": "Fallback"}),
        ("detector", {"engine": "openai", "openai_family": "paddleocr_vl"}),
        ("model", {"engine": "openai", "model": "glm_ocr"}),
        ("model", {"engine": "replay", "structure": "detector"}),
    ],
)
def test_the_engine_decides_which_model_counts(expected: str, fields: dict[str, str]) -> None:
    """A server's model is OPENAI_FAMILY, and recorded answers hold the detections already."""
    assert structure.choose(Settings.model_validate(fields)) == expected


@pytest.mark.parametrize(
    ("message", "fields"),
    [
        ("STRUCTURE=detector does not fit ENGINE=cpu, which has a layout model of its own", {"engine": "cpu"}),
        ("STRUCTURE=detector does not fit deepseek_ocr_json",
         {"engine": "openai", "openai_family": "deepseek_ocr_json"}),
        ("unknown model gpt", {"engine": "vllm", "model": "gpt"}),
    ],
)  # fmt: skip
def test_an_engine_that_cannot_have_a_detector_is_refused(message: str, fields: dict[str, str]) -> None:
    """A misspelt model is reported as such, and not as one that does not fit."""
    with pytest.raises(InvalidSetting, match=message):
        structure.choose(Settings.model_validate({**fields, "structure": "detector"}))


def test_the_weights_are_those_that_the_structure_needs() -> None:
    """The detector is downloaded with the models that need it, and alone if it is named."""

    def names(*arguments: str) -> list[str]:
        return list(list_weights(*arguments))

    assert names("deepseek_ocr") == ["deepseek_ocr"]
    assert names("deepseek_ocr", "fallback") == ["deepseek_ocr", DETECTOR]
    assert names("glm_ocr") == ["glm_ocr", DETECTOR]
    assert names(DETECTOR) == [DETECTOR]

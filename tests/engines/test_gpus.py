"""How GPUs are divided among engines, by GPUS and TENSOR_PARALLEL_SIZE."""

from __future__ import annotations

import pytest

from twopass.engines import preflight
from twopass.engines.gpus import Gpu, GpuInfo, divide
from twopass.errors import Code, InvalidSetting
from twopass.settings import Settings, load_settings

H100, T4 = "NVIDIA H100", "Tesla T4"


def build_info(*names: str) -> GpuInfo:
    """A machine with GPUs of these kinds, numbered from 0."""
    gpus = tuple(Gpu(str(number), name) for number, name in enumerate(names))
    return GpuInfo(len(names), 80.0, 80.0, (13, 0), names[0] if names else "", "580.1", gpus)


@pytest.mark.parametrize(
    ("found", "size", "expected"),
    [
        ([], 1, [()]),
        ([H100], 1, [("0",)]),
        ([H100] * 2, 1, [("0",), ("1",)]),
        ([H100] * 4, 2, [("0", "1"), ("2", "3")]),
        ([H100] * 3, 2, [("0", "1")]),
        ([H100, T4, H100], 1, [("0",), ("2",)]),
        ([H100], 2, [("0",)]),  # preflight refuses it
    ],
)
def test_auto_uses_all_gpus_of_one_kind(found: list[str], size: int, expected: list[tuple[str, ...]]) -> None:
    """Each engine gets as many as its model is split across; a machine without GPUs has one engine."""
    assert [*divide(Settings(tensor_parallel_size=size), build_info(*found))] == expected


@pytest.mark.parametrize(
    ("number", "size", "expected"), [(1, 1, [("0",)]), (2, 1, [("0",), ("1",)]), (4, 2, [("0", "1"), ("2", "3")])]
)
def test_a_number_uses_the_first_gpus(number: int, size: int, expected: list[tuple[str, ...]]) -> None:
    """The others are left to other programs."""
    assert [*divide(Settings(gpus=number, tensor_parallel_size=size), build_info(*[H100] * 8))] == expected


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ([], "GPUS: 2 GPUs of one kind are required and 0 were found;"),
        ([H100], "GPUS: 2 GPUs of one kind are required and 1 were found;"),
        ([H100, T4], "GPUS: 2 GPUs of one kind are required and 1 were found, besides 1 of another kind;"),
    ],
)
def test_a_number_that_is_not_there_is_refused(found: list[str], expected: str) -> None:
    """The message names the setting and what was found."""
    with pytest.raises(InvalidSetting, match=expected) as caught:
        divide(Settings(gpus=2), build_info(*found))
    assert caught.value.code is Code.INVALID_SETTING


def test_the_preset_for_cpus_uses_no_gpu() -> None:
    """It has one engine on a machine with several GPUs."""
    assert divide(Settings(preset="cpu"), build_info(H100, H100)) == ((),)


def test_gpus_that_cannot_be_divided_are_refused() -> None:
    """A model that is split across two GPUs cannot use three; this is found before anything is opened."""
    with pytest.raises(InvalidSetting, match="GPUS: 3 is no multiple of TENSOR_PARALLEL_SIZE=2"):
        preflight.check_settings(Settings(gpus=3, tensor_parallel_size=2))


@pytest.mark.parametrize(("text", "expected"), [("auto", "auto"), ("AUTO", "auto"), ("2", 2), ("", "auto")])
def test_the_setting_is_auto_or_a_number(monkeypatch: pytest.MonkeyPatch, text: str, expected: str | int) -> None:
    """As everywhere, an empty variable counts as not set."""
    monkeypatch.setenv("GPUS", text)

    assert load_settings().gpus == expected


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "all"])
def test_other_values_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """In one line that names the setting."""
    monkeypatch.setenv("GPUS", text)

    with pytest.raises(
        InvalidSetting, match="^INVALID_SETTING: GPUS: choose auto, or a number of GPUs from 1; correct"
    ):
        load_settings()

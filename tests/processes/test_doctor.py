"""`twopass doctor` finds what would stop a worker, or cost a job, before it is started."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.engines.test_weights import write_detector
from tests.fakes import s3
from twopass.cli.doctor import CHECKS, COMMANDS, Level, check_optional_packages, run_checks
from twopass.errors import Code, EngineError, InvalidSetting, StoreError
from twopass.settings import Settings
from twopass.telemetry.metrics import Metrics, serve

DOCTOR = f"{sys.executable} -m twopass.cli doctor"


def doctor(line: str = DOCTOR, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **settings}
    return subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, timeout=120)


def find_line(ran: subprocess.CompletedProcess[str], check: str) -> str:
    (line,) = [line for line in ran.stdout.splitlines() if line[9:].startswith(check)]
    return line


def test_a_machine_that_can_read_passes(tmp_path: Path) -> None:
    """There is one line for each check, none failed, and the exit code is 0."""
    (tmp_path / "kor.traineddata").touch()

    ran = doctor(TESSDATA_DIR=str(tmp_path))

    assert ran.returncode == 0, ran.stdout
    assert len(ran.stdout.splitlines()) == len(CHECKS) and not ran.stderr
    assert all(find_line(ran, check).split()[0] in ("ok", "warning") for check in CHECKS)
    assert find_line(ran, "engine").endswith("cpu: pymupdf, pymupdf4llm, onnxruntime, rapidocr")
    assert find_line(ran, "Tesseract languages") == f"ok       Tesseract languages {tmp_path}: kor"


def test_the_settings_line_names_their_file(tmp_path: Path) -> None:
    """Whoever has forgotten a twopass.toml in the folder sees here that it counts."""
    config = tmp_path / "mine.toml"
    config.write_text('[engine]\nengine = "cpu"\n')

    ran = doctor(f"{DOCTOR} read --config {config}")

    assert find_line(ran, "settings").endswith(f"read from the environment and {config}; they fit together")


def test_doctor_imports_libraries_that_leave_nothing(tmp_path: Path) -> None:
    """An import of onnxruntime alone would write an id of the machine."""
    ran = doctor(HOME=str(tmp_path), TMPDIR=str(tmp_path))

    assert "onnxruntime" in find_line(ran, "engine")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_failed_checks_are_printed_as_json() -> None:
    """--json prints each check with its outcome and message, and the exit code is 1 if one failed."""
    with socket.create_server(("", 0)) as listener:
        port = str(listener.getsockname()[1])
        ran = doctor(f"{DOCTOR} --json", METRICS_PORT=port, ENGNE="vllm")

    found = {finding["check"]: finding for finding in json.loads(ran.stdout)}
    assert ran.returncode == 1 and list(found) == list(CHECKS)
    assert found["settings"]["message"] == "INVALID_SETTING: ENGNE: unknown setting; did you mean ENGINE?"
    assert found["port"]["outcome"] == "failed" and f"METRICS_PORT: port {port}" in found["port"]["message"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"CONCURRENCY": "plenty"}, "CONCURRENCY: Input should be a valid integer"),
        ({"ENGINE": "openai"}, "OPENAI_BASE_URL: engine openai needs"),
        ({"ALLOWED_DIR": "/missing"}, "ALLOWED_DIR: /missing is not a folder"),
    ],
)
def test_wrong_settings_are_the_only_finding(
    settings: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker could start with them, so that nothing else is checked."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    (finding,) = run_checks(())

    assert (finding.check, finding.outcome) == ("settings", Level.FAILED)
    assert finding.message.startswith(f"INVALID_SETTING: {expected}")


# ---- the bucket ---------------------------------------------------------------------------------


@pytest.fixture
def proxy(endpoint: str, bucket: Any) -> s3.Proxy:
    return s3.Proxy(endpoint)


@pytest.fixture
def settings(proxy: s3.Proxy) -> Iterator[Settings]:
    """A worker's settings with the default bucket behind the proxy."""
    with proxy.serve() as url:
        yield s3.settings(url, bucket_name="bucket", store_patience_s=1)


def deny(proxy: s3.Proxy, method: str, path: str = "") -> None:
    """Answer every such request as S3 does to a key without the permission."""
    fault = s3.Fault(method, 403, "AccessDenied")
    proxy.choose_fault = lambda request: fault if request.method == method and path in request.path else None


def test_a_good_bucket_is_used_as_jobs_use_it_and_left_clean(proxy: s3.Proxy, settings: Settings, bucket: Any) -> None:
    """An object is written under a condition, read, listed and deleted; nothing is left."""
    level, message = CHECKS["bucket"](settings)

    assert level is Level.OK and message.startswith("s3://bucket/twopass/: ")
    assert {request.method for request in proxy.requests} == {"PUT", "GET", "DELETE"}
    assert s3.read_objects(bucket) == {}


@pytest.mark.parametrize(("method", "path"), [("PUT", ""), ("GET", "/.twopass-doctor"), ("GET", "list-type=2")])
def test_a_key_that_may_not_write_read_or_list_fails(
    proxy: s3.Proxy, settings: Settings, method: str, path: str
) -> None:
    """The message names the permissions that jobs need."""
    deny(proxy, method, path)

    with pytest.raises(StoreError, match="s3:GetObject, s3:PutObject and s3:ListBucket") as caught:
        CHECKS["bucket"](settings)
    assert caught.value.code is Code.OUTPUT_DENIED


def test_a_key_that_may_not_delete_is_a_warning(proxy: s3.Proxy, settings: Settings) -> None:
    """Jobs work without; the message names the object that is left and the permission."""
    deny(proxy, "DELETE")

    level, message = CHECKS["bucket"](settings)

    assert level is Level.WARNING
    assert message.startswith(".twopass-doctor-") and "s3:DeleteObject" in message


def test_a_store_that_ignores_conditions_is_a_warning(proxy: s3.Proxy, settings: Settings) -> None:
    """Jobs work, but two workers may overwrite each other's pages."""
    proxy.dropped_headers = {"if-none-match", "if-match"}

    level, message = CHECKS["bucket"](settings)

    assert level is Level.WARNING and "ignores conditional writes" in message


def test_a_store_that_does_not_answer_fails() -> None:
    """The message says what to check, after seconds."""
    nowhere = s3.settings("http://127.0.0.1:9", bucket_name="bucket", store_patience_s=0)

    with pytest.raises(StoreError, match="STORE_UNAVAILABLE.*check the endpoint"):
        CHECKS["bucket"](nowhere)


# ---- the machine --------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[str]:
    """A file system of 64 KiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tmp_path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a file system")
    yield str(tmp_path)
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    ("needed", "expected"),
    [(1 << 20, "1,048,576 are needed"), (0, "temporary files cannot be written (No space left on device)")],
)
def test_a_full_disk_fails(small_disk: str, needed: int, expected: str) -> None:
    """Too little space is a failure, and so is a disk that fills up although no minimum is set."""
    ran = doctor(TMPDIR=small_disk, MIN_FREE_DISK_BYTES=str(needed))

    assert ran.returncode == 1
    assert find_line(ran, "temporary files").startswith("failed ") and expected in ran.stdout


def test_a_folder_for_temporary_files_that_cannot_be_used_is_a_warning() -> None:
    """Python then uses another folder without a message."""
    ran = doctor(TMPDIR="/missing")

    assert ran.returncode == 0
    assert find_line(ran, "temporary files").startswith(
        "warning  temporary files     TMPDIR: /missing cannot be written"
    )


def test_few_file_descriptors_are_a_warning() -> None:
    """The message says how to raise the limit in a container."""
    ran = doctor(f"ulimit -n 1024; {DOCTOR}")

    assert find_line(ran, "file descriptors").startswith("warning  file descriptors    at most 1024")
    assert "--ulimit nofile=" in ran.stdout


def test_missing_packages_fail_with_what_to_install() -> None:
    """The engine's packages are imported, and the error of the import is in the message."""
    if find_spec("torch"):
        pytest.skip("torch is installed here")

    level, message = CHECKS["engine"](Settings(engine="hf"))

    assert level is Level.FAILED
    assert message.startswith("hf: ModuleNotFoundError: No module named 'torch'; ")
    assert message.endswith("run `python -m pip install '.[hf]'` in the checkout")


@pytest.mark.parametrize(("name", "missing", "extra"), [("serve", "uvicorn", "serve"), ("handler", "runpod", "worker")])
def test_a_command_whose_packages_are_missing_fails(name: str, missing: str, extra: str) -> None:
    """Reading needs neither: `twopass doctor read` does not look for them."""
    start = f"import sys; sys.modules['{missing}'] = None; from twopass.cli.app import main; main()"
    command = f'{sys.executable} -c "{start}" doctor'

    ran, others = doctor(command), doctor(f"{command} read")

    line = find_line(ran, COMMANDS[name][0])
    assert line.startswith("failed ")
    assert line.endswith(f"needs {missing}: run `python -m pip install '.[{extra}]'` in the checkout")
    assert (ran.returncode, others.returncode) == (1, 0)
    assert len(others.stdout.splitlines()) == len(CHECKS) - len(COMMANDS)


def test_an_unknown_command_is_refused() -> None:
    """The message has the known ones."""
    ran = doctor(f"{DOCTOR} read sreve")

    assert ran.returncode == 2 and "'sreve' is not one of read, serve, handler" in ran.stderr


def test_weights_are_searched_for_but_not_downloaded(tmp_path: Path) -> None:
    """Missing weights fail; with ALLOW_DOWNLOAD they are a warning; complete ones are named with their folder."""
    server = {"engine": "openai", "openai_base_url": "http://localhost:1/v1", "structure": "fallback"}
    missing = Settings(**server, detector_dir=tmp_path / "missing")

    with pytest.raises(EngineError, match="WEIGHTS_MISSING.*missing does not exist"):
        CHECKS["weights"](missing)
    later, _ = CHECKS["weights"](missing.model_copy(update={"allow_download": True}))
    write_detector(tmp_path / "detector")
    level, message = CHECKS["weights"](Settings(**server, detector_dir=tmp_path / "detector"))

    assert later is Level.WARNING
    assert (level, message) == (Level.OK, f"complete: {tmp_path / 'detector'}")
    assert CHECKS["weights"](Settings())[1] == "engine cpu needs none"


def test_no_language_file_is_a_warning(tmp_path: Path) -> None:
    """Other scans are read, so that it is no failure; the message says what to install."""
    level, message = CHECKS["Tesseract languages"](Settings(tessdata_dir=tmp_path))

    assert level is Level.WARNING and "tesseract-ocr-kor" in message


def test_a_package_that_a_setting_needs_must_be_installed() -> None:
    """A missing package is a failure only if a setting asks for it; the message says what to install."""
    packages = [("nothing.of_this_name", "otel", "traces", "otel_exporter_otlp_endpoint")]
    asked = Settings(otel_exporter_otlp_endpoint="http://localhost:4318")

    failed, message = check_optional_packages(asked, packages)
    level, advice = check_optional_packages(Settings(), packages)

    assert (failed, level) == (Level.FAILED, Level.OK)
    assert message.startswith("OTEL_EXPORTER_OTLP_ENDPOINT: ") and advice in message
    assert advice == "traces: run `python -m pip install '.[otel]'` in the checkout"


def test_a_worker_that_runs_says_where_its_start_went() -> None:
    """It is asked on METRICS_PORT; without a worker there, or without a port, that is no problem."""
    metrics = Metrics()
    metrics.observe_start({"imports_s": 13.5, "engine_weights_s": 2.0, "ready_s": 15.5})

    with serve(metrics, 0, lambda: True) as port:
        answer = CHECKS["worker"](Settings(metrics_port=port))
    later = CHECKS["worker"](Settings(metrics_port=port))

    assert answer == (Level.OK, "ready 15.5 s after its process began: imports 13.5, engine_weights 2.0")
    assert later[0] is CHECKS["worker"](Settings())[0] is Level.OK


def test_a_port_in_use_fails() -> None:
    """A worker would end with the same message."""
    with socket.create_server(("", 0)) as listener, pytest.raises(InvalidSetting, match="METRICS_PORT"):
        CHECKS["port"](Settings(metrics_port=listener.getsockname()[1]))

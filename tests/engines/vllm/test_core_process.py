"""Environment variables that only one engine core gets."""

from __future__ import annotations

import logging
import os
import threading

import pytest

from twopass.engines.vllm.core_process import set_variables
from twopass.engines.vllm.plugin.core_exit import ExitReport, OutOfMemoryHandler, report_no_graphs

MAX_WAIT_S = 30


def test_variables_are_set_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Afterwards the environment is as before, also after an error."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")

    with pytest.raises(ValueError), set_variables({"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}):
        during = (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"])
        raise ValueError

    assert during == ("1", "PCI_BUS_ID")
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("CUDA_DEVICE_ORDER")) == ("0,1", None)


def test_two_cores_never_get_the_variables_of_each_other() -> None:
    """A second start waits until the first has its process."""
    seen: list[str] = []

    def start(gpu: str) -> None:
        with set_variables({"CUDA_VISIBLE_DEVICES": gpu}):
            seen.append(os.environ["CUDA_VISIBLE_DEVICES"])

    with set_variables({"CUDA_VISIBLE_DEVICES": "0"}):
        other = threading.Thread(target=start, args=("1",))
        other.start()
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    other.join(MAX_WAIT_S)

    assert seen == ["0", "1"]


def test_each_engine_has_its_own_exit_report() -> None:
    """An engine that died is not told of the memory of another one's core."""
    first, second = ExitReport(), ExitReport()

    assert first.variables.keys() == second.variables.keys()
    assert first.variables != second.variables


def report_as_core(report: ExitReport, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process write into the report."""
    for name, value in report.variables.items():
        monkeypatch.setenv(name, value)


def log_end(error: Exception) -> None:
    """Log the exception that ends a core, as vLLM does."""
    OutOfMemoryHandler().emit(logging.LogRecord("vllm", logging.ERROR, "", 0, "died", None, (type(error), error, None)))


@pytest.mark.parametrize("message", ["CUDA out of memory", "operation not permitted when stream is capturing"])
def test_a_failed_capture_is_reported_whatever_the_error(message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error that the core logs afterwards does not replace the report; reading it clears it."""
    report = ExitReport()
    report_as_core(report, monkeypatch)

    @report_no_graphs()
    def capture() -> None:
        raise RuntimeError(message)

    for _ in range(2):  # once to measure the memory of graphs, once for those that stay
        with pytest.raises(RuntimeError) as caught:
            capture()
    log_end(caught.value)

    assert [report.pop_out_of_memory(), report.pop_no_graphs(), report.pop_no_graphs()] == [False, True, False]


def test_asking_for_graphs_keeps_a_report_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restarted core that runs out of memory as it starts is asked for its graphs first; the next one gets less."""
    report = ExitReport()
    report_as_core(report, monkeypatch)

    log_end(RuntimeError("CUDA out of memory"))

    assert [report.pop_no_graphs(), report.pop_out_of_memory(), report.pop_out_of_memory()] == [False, True, False]

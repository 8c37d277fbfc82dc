"""Run one benchmark, from the repository root: `python -m scripts.bench [COMMAND] [OPTION …]`."""

from __future__ import annotations

import importlib
import sys

from twopass.runtime import vendor_reports

MODULES = ("latency", "starts", "acceptance", "corpus", "scans", "calibration", "campaign", "predict")
# the module of each command; several commands of one module have functions of their own
COMMANDS = {
    "all": "suite",
    "encoder": "suite.main_encoder",
    "families": "families",
    "detector": "families.main_detector",
    "jobs": "jobs",
    "gpus": "jobs.main_gpus",
    "stages": "jobs.main_stages",
    **{name: name for name in MODULES},
}
DEFAULT = "all"


def main(arguments: list[str]) -> None:
    """Import only the chosen command: several need libraries that the others do without."""
    vendor_reports.switch_off()  # here and in the processes of the readers that are compared
    command, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else (DEFAULT, arguments)
    module, _, function = COMMANDS[command].partition(".")
    getattr(importlib.import_module(f"scripts.bench.{module}"), function or "main")(rest)


if __name__ == "__main__":
    main(sys.argv[1:])

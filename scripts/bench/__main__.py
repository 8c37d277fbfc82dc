"""Run one benchmark, from the repository root: `python -m scripts.bench [COMMAND] [OPTION …]`."""

from __future__ import annotations

import importlib
import sys

from twopass.runtime import vendor_reports

# modules of this package
COMMANDS = (
    *("all", "families", "detector", "jobs", "latency", "gpus", "encoder", "starts"),
    *("acceptance", "stages", "corpus", "scans", "campaign", "predict"),
)
DEFAULT = "all"


def main(arguments: list[str]) -> None:
    """Import only the chosen command: several need libraries that the others do without."""
    vendor_reports.switch_off()  # here and in the processes of the readers that are compared
    command, rest = (arguments[0], arguments[1:]) if arguments and arguments[0] in COMMANDS else (DEFAULT, arguments)
    module = {"all": "suite"}.get(command, command)
    importlib.import_module(f"scripts.bench.{module}").main(rest)


if __name__ == "__main__":
    main(sys.argv[1:])

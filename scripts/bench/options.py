"""Command-line options that several commands have."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any

from scripts.bench.workload import DRAFT_TOKENS


def create_parser(module: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m MODULE`, whose help shows the description as it is written."""
    return ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=RawDescriptionHelpFormatter
    )


def parse_with_drafts(parser: ArgumentParser, arguments: Sequence[str]) -> Any:
    """Parse the arguments, with the options of drafts; `drafts` is 0 without --acceptance.

    Random weights accept almost no draft, so that an engine with drafts is measured with simulated acceptance only.
    """
    parser.add_argument(
        "--acceptance", type=float,
        help="decode speculatively: tokens that a step yields on average, simulated by vLLM (default: no drafts)",
    )  # fmt: skip
    parser.add_argument(
        "--drafts",
        type=int,
        default=DRAFT_TOKENS,
        help="draft tokens that are verified at each step, with --acceptance",
    )
    options = parser.parse_args(arguments)
    if options.acceptance is None:
        options.drafts = 0
    elif options.drafts < 1:
        parser.error("--acceptance: needs --drafts of at least 1")
    return options

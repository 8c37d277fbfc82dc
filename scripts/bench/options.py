"""Command-line options that several commands have."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter

from scripts.bench.workload import DRAFT_TOKENS


def create_parser(module: str, description: str | None) -> ArgumentParser:
    """A parser for `python -m MODULE`, whose help shows the description as it is written."""
    return ArgumentParser(
        prog=f"python -m {module}", description=description, formatter_class=RawDescriptionHelpFormatter
    )


def add_draft_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--drafts", type=int, default=DRAFT_TOKENS, help="tokens of a text that are verified at each step"
    )
    parser.add_argument(
        "--acceptance", type=float,
        help="tokens that a step yields on average, simulated by vLLM: random weights say nothing about it",
    )  # fmt: skip

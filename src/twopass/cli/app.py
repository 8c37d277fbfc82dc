"""The subcommands of `twopass`; a subcommand's module is imported only when the subcommand is named.

To add a subcommand, write twopass/cli/NAME.py with a function `command` and add a line to COMMANDS.
"""

from __future__ import annotations

import importlib
from difflib import get_close_matches
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from twopass.cli import exit_codes
from twopass.runtime import vendor_reports
from twopass.version import VERSION

COMMANDS = {  # name -> what it does, the first line of the docstring of the module's `command`
    "read": "Read documents in this process, or in several that share an output.",
    "serve": "Read documents that are sent over HTTP, with a page for the browser.",
    "mcp": "Read documents for a language model, over the Model Context Protocol.",
    "submit": "Read documents with the workers of an endpoint.",
    "reparse": "Write more formats of a finished document, without an engine.",
    "parse-answer": "Parse a model's raw answer and print the page's elements as JSON.",
    "schema": "Print the JSON Schema of document.json.",
    "warm-up": "Fill ENGINE_CACHE for this machine's kind of GPU and versions.",
    "download-weights": "Download a model's weights at the pinned revision, or verify a download.",
    "accept": "Check that this machine reads with these weights as the official model does.",
    "doctor": "Check whether a worker could start with these settings on this machine.",
    "health": "Ask a worker whether it can take jobs.",
}
# Plain text, not rich's boxes, which are hard to search and to copy.
PLAIN: dict[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}
CONTEXT: dict[str, Any] = {"help_option_names": ["--help", "-h"]}


class _LazyGroup(TyperGroup):
    """A group that lists its subcommands without importing them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"twopass.cli.{cmd_name.replace('-', '_')}")
        subcommand = typer.Typer(**PLAIN, add_completion=False)
        epilog = exit_codes.describe(cmd_name)
        subcommand.command(cmd_name, epilog=epilog, context_settings=CONTEXT)(module.command)
        return typer.main.get_command(subcommand)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in COMMANDS and (similar := get_close_matches(args[0], COMMANDS, n=1)):
            ctx.fail(f"No such command '{args[0]}'. Did you mean {similar[0]}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


app = typer.Typer(name="twopass", cls=_LazyGroup, no_args_is_help=True, context_settings=CONTEXT, **PLAIN)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"twopass {VERSION}")
        raise typer.Exit


@app.callback()
def twopass(
    version: Annotated[
        bool, typer.Option("--version", "-V", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Turn PDFs and page images into DocJSON and markdown. `twopass COMMAND --help` has the options of a command."""


def main() -> None:
    vendor_reports.switch_off()  # commands that open no worker load such libraries, too
    app(prog_name="twopass")

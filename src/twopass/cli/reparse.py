"""The `twopass reparse` command."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from twopass.cli import options


def command(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER", help="A finished document's folder: a path, or s3://bucket/prefix/document-id."
        ),
    ],
    formats: options.Formats = "",
    markdown: Annotated[
        dict[str, Any] | None,
        typer.Option(parser=options.parse_json_object, metavar="JSON", help='As in a job: \'{"maths": "\\\\("}\'.'),
    ] = None,
    chunks: Annotated[
        dict[str, Any] | None,
        typer.Option(parser=options.parse_json_object, metavar="JSON", help="As in a job: '{\"max_tokens\": 256}'."),
    ] = None,
    furniture: options.Furniture = None,
    hidden_text: options.HiddenText = None,
    source: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="Path or URI of the source; default: where it was when it was read."),
    ] = None,
    password: options.Password = None,
    reread: Annotated[
        bool, typer.Option("--reread", help="Parse the recorded answers again, into a new document at --output.")
    ] = False,
    output: Annotated[
        str | None, typer.Option(metavar="PLACE", help="For --reread: folder or s3:// prefix of the new document.")
    ] = None,
    config: options.Config = None,
) -> None:
    """Write more formats of a finished document, without an engine.

    Formats are written beside the existing ones, from the document's checkpoints. --reread parses the recorded
    answers with this version's parsers and writes a new document; a finished one is never overwritten. --reread needs
    the source for its text layer and crops, the review format for pictures of its pages.
    """
    if reread != bool(output):
        raise typer.BadParameter("use both or neither", param_hint="--reread / --output")

    from twopass.cli import reparse_folder
    from twopass.errors import TwopassError
    from twopass.telemetry import logs

    asked = reparse_folder.Arguments(
        folder=folder,
        formats=tuple(filter(None, formats.split(","))),
        markdown=markdown,
        chunks=chunks,
        furniture=furniture,
        hidden_text=hidden_text,
        source=source,
        password=password,
        output=output,
    )
    settings = options.load_settings()
    logs.set_up(settings)
    try:
        report = reparse_folder.run(asked, settings)
    except TwopassError as error:
        options.fail(error)
    typer.echo(json.dumps(report, ensure_ascii=False, indent=1))

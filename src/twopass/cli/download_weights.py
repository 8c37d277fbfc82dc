"""The `twopass download-weights` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twopass.cli import options
from twopass.engines import hub, weights
from twopass.errors import TwopassError

MODELS = sorted(weights.MODELS)


def command(
    model: Annotated[
        str, typer.Argument(parser=options.parse_choice(MODELS), metavar="MODEL", help=f"One of {', '.join(MODELS)}.")
    ],
    folder: Annotated[
        Path, typer.Argument(parser=options.parse_folder, metavar="FOLDER", help="Folder for the model's files.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the folder with its checksums.json; needs no network.")
    ] = False,
) -> None:
    """Download a model's weights at the pinned revision, or verify a download.

    Every file is compared with the hub's checksums, which are kept in checksums.json beside the files.

    Exit code: 0 the folder is complete and correct, 1 it is not, 2 a wrong argument.
    """
    try:
        is_good = _verify(model, folder) if verify else _download(model, folder)
    except TwopassError as error:
        typer.echo(error, err=True)
        raise typer.Exit(1) from None
    raise typer.Exit(0 if is_good else 1)


def _download(model: str, folder: Path) -> bool:
    pinned = weights.look_up(model)
    hub.download(pinned.repo, pinned.revision, folder)
    defect = weights.describe_defect(folder)
    typer.echo(f"{pinned.repo}@{pinned.revision} -> {folder}{f', which {defect}' if defect else ''}")
    return defect is None


def _verify(model: str, folder: Path) -> bool:
    problems = hub.find_corrupt_files(folder)
    pinned, found = weights.look_up(model), hub.read_revision(folder)
    if found != (pinned.repo, pinned.revision):  # document ids name the pinned revision and would be wrong
        problems = [f"{'@'.join(found)} in place of {pinned.repo}@{pinned.revision}", *problems]
    typer.echo("\n".join(f"wrong: {name}" for name in problems) or f"{folder}: every file is as it was downloaded")
    return not problems

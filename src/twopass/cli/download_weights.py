"""The `twopass download-weights` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from twopass.cli import options
from twopass.cli.exit_codes import Exit
from twopass.engines import hub, weights
from twopass.errors import TwopassError
from twopass.models import WEIGHTS, Structure, Weights, list_weights

NAMES = list(WEIGHTS)


def command(
    model: Annotated[
        str, typer.Argument(parser=options.parse_choice(NAMES), metavar="MODEL", help=f"One of {', '.join(NAMES)}.")
    ],
    folder: Annotated[
        Path, typer.Argument(parser=options.parse_folder, metavar="FOLDER", help="Folder for the model's files.")
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare the folder with its checksums.json; needs no network.")
    ] = False,
    finds_regions: Annotated[
        str,
        typer.Option(
            "--structure",
            **options.choice(list(Structure)),
            help="With detector or fallback, also the layout detector, into a folder beside FOLDER.",
        ),
    ] = Structure.AUTO,
) -> None:
    """Download a model's weights at the pinned revision, or verify a download.

    Every file is compared with the hub's checksums, which are kept in checksums.json beside the files. A model that
    reads single regions comes with the layout detector, as with --structure detector.
    """
    try:
        needed = list_weights(model, finds_regions)
        folders = {folder if name == model else folder.parent / name: pinned for name, pinned in needed.items()}
        are_good = [_verify(pinned, place) if verify else _download(pinned, place) for place, pinned in folders.items()]
    except TwopassError as error:
        options.fail(error)
    raise typer.Exit(Exit.SUCCESS if all(are_good) else Exit.FAILED)


def _download(pinned: Weights, folder: Path) -> bool:
    hub.download(pinned.repo, pinned.revision, folder)
    defect = weights.describe_defect(folder, pinned.preprocessing)
    place = f"{folder}, which {defect}" if defect else folder
    typer.echo(f"{pinned.repo}@{pinned.revision} -> {place}; licence: {pinned.licence}")
    return defect is None


def _verify(pinned: Weights, folder: Path) -> bool:
    problems = hub.find_corrupt_files(folder)
    found = hub.read_revision(folder)
    if found != (pinned.repo, pinned.revision):  # document ids name the pinned revision and would be wrong
        problems = [f"{'@'.join(found)} in place of {pinned.repo}@{pinned.revision}", *problems]
    typer.echo("\n".join(f"wrong: {name}" for name in problems) or f"{folder}: every file is as it was downloaded")
    return not problems

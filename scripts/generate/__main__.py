"""Write the files that are generated from the code. Run from the repository root; tests fail when a file is stale."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from scripts import ROOT
from scripts.generate import codes, contract, hub, licences, models, schema, settings

GENERATORS = {
    "settings": settings, "codes": codes, "schema": schema, "contract": contract, "hub": hub, "licences": licences,
    "models": models,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m scripts.generate", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in GENERATORS.items():
        assert module.__doc__
        commands.add_parser(name, help=module.__doc__.partition("\n")[0].removeprefix("Generate ").rstrip("."))
    commands.choices["licences"].add_argument(
        "--image",
        metavar="PYTHON",
        help="first ask the package index for the licences of the GPU image's packages, with the pip of that Python",
    )
    commands.add_parser("all", help="all of these files")
    options = parser.parse_args(arguments)

    if options.command == "licences" and options.image:
        licences.update_image_licences(options.image)
    for name, module in GENERATORS.items():
        if options.command in (name, "all"):
            for path, text in module.render_files().items():
                path.write_text(text, encoding="utf-8")
                print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

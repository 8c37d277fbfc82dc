"""A model's raw answer in, the elements a family makes of it out, as a JSON list; needs no GPU and no page.

    python scripts/parse_answer.py FILE [--family deepseek_ocr] [--page 1] [--reads document]   (- reads stdin)

An answer that will not do says why on stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from twopass.document import Element
from twopass.families import registry
from twopass.families.interface import NORMAL, Answer, Rung

SHOWN = {
    "id", "category", "kind", "native_label", "boxes", "text", "markdown", "level", "table", "figure", "formula",
    "parent_id", "caption_ids", "flags",
}  # fmt: skip


def main() -> None:
    asked = arguments()
    text = sys.stdin.read() if asked.file == "-" else Path(asked.file).read_text(errors="replace")
    answer = parsed(text, asked.family, asked.page, asked.reads)
    if answer.reason:
        print(f"{answer.reason}: this answer would send the page down the ladder", file=sys.stderr)
    print(json.dumps([shown(element) for element in answer.elements], ensure_ascii=False, indent=2))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", help="a file with one answer; - for stdin")
    parser.add_argument("--family", default="deepseek_ocr", choices=sorted(registry.FAMILIES))
    parser.add_argument("--page", type=int, default=1, help="the page's number, for ids")
    parser.add_argument("--reads", default="document", help="the grammar: document, plain, or a task's name")
    return parser.parse_args()


def parsed(text: str, family: str, page: int, reads: str) -> Answer:
    return registry.named(family).parse(text, page, Rung(NORMAL, "", reads=reads))


def shown(element: Element) -> dict[str, Any]:
    return element.model_dump(mode="json", include=SHOWN, exclude_none=True)


if __name__ == "__main__":
    main()

"""Count the tokens that each decoder step yields when drafts come from the page's text, without a model.

    python -m scripts.bench acceptance [PDF_OR_FOLDER …] [--answers FOLDER] [--ocr] [--json FILE]

Answers are replayed through the rules that the engine drafts with (engines/vllm/plugin/drafts.py). A step yields
the accepted drafts and one token of the model's own; 1 is decoding without drafts.

- recorded answer: of DeepSeek-OCR, from `*.txt` below --answers; an answer that loops is left out. These pages have no
  text layer: the answer's own words stand in for it.
- born-digital page: the cpu engine's reading in DeepSeek-OCR's grammar; drafts come from the page's text layer. Both
  have the same words, so this is an upper bound. With --ocr the page is also read from its image, by OCR that makes
  more mistakes than the model: a lower bound.
- scan: the same for pages that the cpu engine reads by OCR or whose layer it doubts.
- table crop: the tables of these pages, each drafted from itself as pass 2's answer would be from pass 1's.

Drafts come from nothing but the answer's own past, from the text, or from the text with 3 % of its words wrong.

The model's tokenizer is not used; a stand-in splits as finely. The table of recorded answers shows its count beside the
true one, where a `records.json` has that.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from scripts.bench import drafted_answers
from scripts.bench.draft_replay import KINDS, replay, split_kinds, split_tokens
from scripts.bench.drafted_answers import Answer
from scripts.bench.options import create_parser
from scripts.bench.report import print_table

COUNTS = (2, 3, 4, 6, 8)
COUNT = 4  # of the tables that show only one
DRAFTS = {"none": "own past", "right": "text", "wrong": "3 % wrong"}
RECORDS = "records.json"


@dataclass
class Tally:
    """Tokens of answers by kind, and steps by draft, drafts per step, and kind of token."""

    answers: int = 0
    tokens: Counter[str] = field(default_factory=Counter)
    steps: Counter[tuple[str, int, str]] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.answers += other.answers
        self.tokens += other.tokens
        self.steps += other.steps

    def count_per_step(self, draft: str, count: int, kinds: Sequence[str] = KINDS) -> float | None:
        """Tokens per step in these kinds of tokens; None if the answers have none, or no such draft."""
        steps = sum(self.steps[draft, count, kind] for kind in kinds)
        return round(sum(self.tokens[kind] for kind in kinds) / steps, 2) if steps else None

    @property
    def facts(self) -> dict[str, Any]:
        total = self.tokens.total()
        return {
            "answers": self.answers,
            "tokens": total,
            "percent_of_tokens": {kind: round(100 * self.tokens[kind] / total) for kind in KINDS},
            "tokens_per_step": {
                draft: {count: self.count_per_step(draft, count) for count in COUNTS} for draft in DRAFTS
            },
            f"by_kind_at_{COUNT}": {
                draft: {kind: self.count_per_step(draft, COUNT, [kind]) for kind in KINDS} for draft in DRAFTS
            },
        }


def main(arguments: Sequence[str]) -> None:
    parser = create_parser("scripts.bench acceptance", __doc__)
    parser.add_argument("paths", type=Path, nargs="*", default=[Path("samples/sample.pdf")])
    parser.add_argument("--pages", type=int, default=8, help="of each document at most")
    parser.add_argument("--ocr", action="store_true", help="read born-digital pages from their images, too")
    parser.add_argument("--answers", type=Path, help="folder of recorded answers")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", action="store_true", help="print rows for docs/log/")
    options = parser.parse_args(arguments)
    by_group: defaultdict[str, Tally] = defaultdict(Tally)
    by_file: defaultdict[tuple[str, str], Tally] = defaultdict(Tally)
    for answer in _list_answers(options):
        tally = replay_answer(answer)
        by_group[answer.group].add(tally)
        by_file[answer.group, answer.file].add(tally)
    counts = list(compare_tokens(options.answers)) if options.answers else []
    for table in (_show_groups(by_group), _show_kinds(by_group), _show_files(by_file), _show_counts(counts)):
        print_table(table, options.markdown)
    if options.json:
        facts = {"groups": {group: tally.facts for group, tally in by_group.items()}, "recorded_tokens": counts}
        options.json.write_text(json.dumps({"acceptance": facts}, indent=1) + "\n")


def _list_answers(options: argparse.Namespace) -> Iterator[Answer]:
    if options.answers:
        yield from drafted_answers.read_recorded(options.answers)
    for path in options.paths:
        for file in sorted(path.glob("*.pdf")) if path.is_dir() else [path]:
            yield from drafted_answers.read_pdf(file, options.pages, options.ocr)


def replay_answer(answer: Answer) -> Tally:
    tokens = split_kinds(answer.answer)
    tally = Tally(1, Counter(kind for kind, _ in tokens[1:]))
    for draft, text in answer.drafts.items():
        for count in COUNTS:
            tally.steps.update({(draft, count, kind): n for kind, n in replay(tokens, text, count).items()})
    return tally


def compare_tokens(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the tokens of recorded answers, ours beside the model's."""
    for path in sorted(folder.rglob(RECORDS)):
        for page in json.loads(path.read_text())["manifest"]["pages"]:
            for mode, facts in page["modes"].items():
                answer = path.parent / f"{page['stem']}.{mode}.txt"
                if answer.exists():
                    ours = len(split_tokens(answer.read_bytes().decode()))
                    yield {"answer": answer.stem, "tokens": ours, "true_tokens": facts["n_output_tokens"]}


def _show_groups(tallies: Mapping[str, Tally]) -> Table:
    table = Table("group", "answers", "tokens", *(f"{kind} %" for kind in KINDS), "drafts from", *map(str, COUNTS))
    for group, tally in tallies.items():
        shares = [f"{100 * tally.tokens[kind] / tally.tokens.total():.0f}" for kind in KINDS]
        for draft, name in DRAFTS.items():
            rates = [tally.count_per_step(draft, count) for count in COUNTS]
            if any(rates):
                table.add_row(group, str(tally.answers), str(tally.tokens.total()), *shares, name, *map(_format, rates))
    table.title = "tokens per step, by drafts per step"
    return table


def _show_kinds(tallies: Mapping[str, Tally]) -> Table:
    table = Table("group", "drafts from", *KINDS, title=f"tokens per step by kind of token, {COUNT} drafts")
    for group, tally in tallies.items():
        for draft, name in DRAFTS.items():
            rates = [tally.count_per_step(draft, COUNT, [kind]) for kind in KINDS]
            if any(rates):
                table.add_row(group, name, *map(_format, rates))
    return table


def _show_files(tallies: Mapping[tuple[str, str], Tally]) -> Table:
    table = Table("group", "file", "tokens", *DRAFTS.values(), title=f"tokens per step by file, {COUNT} drafts")
    for (group, file), tally in tallies.items():
        rates = [tally.count_per_step(draft, COUNT) for draft in DRAFTS]
        table.add_row(group, file, str(tally.tokens.total()), *map(_format, rates))
    return table


def _show_counts(counts: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("answer", "tokens", "of the model", title="the stand-in for the tokenizer")
    for count in counts:
        table.add_row(count["answer"], str(count["tokens"]), str(count["true_tokens"]))
    return table


def _format(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2f}"

"""The words of recorded answers, compared with the elements that they become: a row for each family and grammar."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from twopass.document import RungName
from twopass.errors import Code
from twopass.families import registry
from twopass.families.interface import Rung

FAMILIES = ("deepseek_ocr", "deepseek_ocr2", "deepseek_ocr_json", "unlimited_ocr")
_LAYOUT = "layout"


class Answer(NamedTuple):
    """A recorded answer, and how it is read."""

    name: str
    family: str
    grammar: str
    text: str


@dataclass
class WordCounts:
    """Answers of one family and grammar, and what became of their words."""

    answers: int = 0
    words: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    loops: list[str] = field(default_factory=list)  # names of answers whose repetition was cut

    def add(self, answer: Answer) -> None:
        family = registry.get_family(answer.family)
        parsed = family.parse(answer.text, 1, Rung(RungName.NORMAL, "", grammar=answer.grammar))
        account = family.account(answer.text, parsed.elements)
        self.answers += 1
        self.words += len(family.account(answer.text, ()).lost)
        if parsed.reason is Code.LOOP:
            self.loops.append(answer.name)
            return
        self.lost += [f"{answer.name}: {word}" for word in account.lost]
        self.repeated += [f"{answer.name}: {word}" for word in account.repeated]


def find_answers(folders: Sequence[Path]) -> Iterator[Answer]:
    """Recorded answers of models in text files, and the pages of finished documents, in folders of any depth."""
    for path in (path for folder in folders for path in sorted(folder.rglob("*.txt"))):
        for family in FAMILIES:
            yield Answer(path.name, family, "plain" if "free" in path.name else "document", path.read_text())
    for path in (path for folder in folders for path in sorted(folder.rglob("pages/*.json"))):
        for completion in json.loads(path.read_text()).get("completions", ()):
            if completion["prompt"] == _LAYOUT:
                yield Answer(f"{path.parent.parent.name} {path.stem}", _LAYOUT, "document", completion["text"])


def count_words(answers: Iterable[Answer]) -> dict[tuple[str, str], WordCounts]:
    counts: dict[tuple[str, str], WordCounts] = {}
    for answer in answers:
        counts.setdefault((answer.family, answer.grammar), WordCounts()).add(answer)
    return counts


def print_words(folders: Sequence[Path]) -> None:
    """Print a row for each family and grammar, and every word that is lost or repeated."""
    print(f"{'answers and elements':30}{'answers':>9}{'words':>9}{'lost':>7}{'repeated':>10}{'loops cut':>11}")
    for (family, grammar), count in count_words(find_answers(folders)).items():
        row = f"{count.answers:9}{count.words:9}{len(count.lost):7}{len(count.repeated):10}{len(count.loops):11}"
        print(f"{family + ', ' + grammar:30}{row}")
        for what, words in (("lost", count.lost), ("repeated", count.repeated), ("loop", count.loops)):
            for word in words:
                print(f"    {what}: {word}")

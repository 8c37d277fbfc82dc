"""Label the footnotes of a document, and find where its paragraphs refer to them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from twopass.document import Element, Kind
from twopass.text import footnotes

MAX_NOTES = 100  # of a page that are linked: each is looked for in all texts of its page
_LABEL = re.compile(r"\w+", flags=re.ASCII)


class Reference(NamedTuple):
    """A paragraph's reference to a footnote; `others` are the other texts of its page."""

    mark: str
    label: str
    others: tuple[str, ...]

    def find(self, text: str) -> tuple[int, int] | None:
        return footnotes.find_reference(text, self.mark, self.others)


def link(
    body: Sequence[Element],
    by_id: Mapping[str, Element],
    paragraphs: Collection[Kind],
    choose_text: Callable[[Element], str],
) -> tuple[dict[str, str], dict[str, list[Reference]]]:
    """Label the footnotes whose mark occurs in their paragraph: labels by footnote, references by paragraph.

    All other footnotes stay plain text, because Markdown readers drop notes without a reference.
    """
    on_page: dict[int, list[Element]] = defaultdict(list)
    for element in body:
        on_page[element.page].append(element)
    found = []
    counted: Counter[int] = Counter()
    for element in body:
        parent = by_id.get(element.parent_id or "")
        note = footnotes.parse_note(element.text) if element.kind is Kind.FOOTNOTE else None
        if not note or not parent or parent.kind not in paragraphs:
            continue
        counted[element.page] += 1
        if counted[element.page] > MAX_NOTES:
            continue
        others = tuple(other.text for other in on_page[parent.page] if other is not parent)
        if footnotes.find_reference(choose_text(parent), note[0], others):
            found.append((element, parent, note[0], others))
    times = Counter(mark for _, _, mark, _ in found)
    labels: dict[str, str] = {}
    references: dict[str, list[Reference]] = defaultdict(list)
    taken: set[str] = set()
    for element, parent, mark, others in found:
        name = mark if _LABEL.fullmatch(mark) else "note"
        label = name if times[mark] == 1 and name == mark else f"{element.page}-{name}"
        if label not in taken:
            taken.add(label)
            labels[element.id] = label
            references[parent.id].append(Reference(mark, label, others))
    return labels, references

"""The meaning of a reply in pass 2 comes from the name of its question, for every family that asks questions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fakes import documents
from tests.fakes.answers import TABLE
from twopass.detection.region import DETECT
from twopass.document import Analysis, Element, Figure, Flag, Kind
from twopass.families.deepseek import PROMPTS
from twopass.families.interface import ElementContext, Family, PageFeatures, PageRequest, Reply
from twopass.families.registry import FAMILIES

ASKING = [family for family in FAMILIES.values() if family.canary]
SIZE = (900, 700)  # large enough for every family
# the replies to the first and second question about an element
REPLIES = {
    "words in a picture": ("Spring\nReservoir", "The image is a flow diagram."),
    "sentences": ("The figure shows a hill.", "A drawing of a hill."),
    "table": (TABLE, TABLE),
    "object": ('{"complexity_data": {"underlying_type": "graph"}}', '{"graph_data": {"graph_type": "bar_chart"}}'),
}
KINDS = (Kind.PICTURE, Kind.CHART, Kind.TABLE, Kind.TEXT, Kind.SECTION_HEADER, Kind.FORMULA)


def ask(family: Family, element: Element, texts: tuple[str, ...], prompt: str | None = None) -> Element:
    """Ask about an element until the family has no more questions; `prompt` replaces the wording of each."""
    replies: list[Reply] = []
    while question := family.next_question(ElementContext(element, True, SIZE, (element,), replies)):
        question = replace(question, prompt=prompt) if prompt else question
        replies.append(Reply(question, texts[len(replies)]))
    assert replies or element.is_figure  # not every family has a prompt for figures
    return family.apply_replies(element, replies)


@pytest.mark.parametrize("texts", REPLIES.values(), ids=REPLIES)
@pytest.mark.parametrize("prompt", [*PROMPTS.values(), "<image>\nQue montre cette image ?"])
@pytest.mark.parametrize("family", ASKING, ids=lambda family: family.name)
def test_a_reply_is_parsed_by_the_name_of_its_question(family: Family, prompt: str, texts: tuple[str, ...]) -> None:
    """A family with other prompts, even those of another question, reads every reply as before.

    Families that are asked only about what a detector found get elements that were not read yet.
    """
    is_detected = family.ladder(PageFeatures(1, 1), PageRequest())[0].prompt == DETECT
    text, flags = ("", (Flag.UNREAD_REGION,)) if is_detected else ("Sprlng", ())
    for kind in KINDS:
        figure = Figure() if kind in (Kind.PICTURE, Kind.CHART) else None
        element = documents.element(kind, text, figure=figure, flags=flags)

        original, reworded = ask(family, element, texts), ask(family, element, texts, prompt)

        assert without_prompt(reworded) == without_prompt(original)


def without_prompt(element: Element) -> Element:
    """Everything but the prompt's text, which the element records."""
    return element.model_copy(update={"analysis": Analysis(source=element.analysis.source)})

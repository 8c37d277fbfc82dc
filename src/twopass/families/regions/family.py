"""The family of region readers: pass 1 is the detector's JSON, pass 2 asks the reader about each region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from twopass.detection.labels import Label
from twopass.detection.region import DETECT
from twopass.document import FIGURES, Element, Figure, Flag, make_element_id
from twopass.errors import Code
from twopass.families import detected_page, formula_numbers, word_account
from twopass.families.detected_page import DETECTION, DetectionParser
from twopass.families.grounded import loops
from twopass.families.interface import (
    CanaryQuestion,
    ElementContext,
    Family,
    FamilyOptions,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.families.regions import cleanup
from twopass.families.regions.elements import add_missing_bullets, apply_reply, with_text
from twopass.families.regions.reader import KINDS, READERS, RegionReader, Task
from twopass.families.word_account import WordAccount
from twopass.models import Model, resolve_structure
from twopass.pages.text_layer import NO_LAYER, TextLayer

_LADDER = (DETECTION,)


@dataclass(frozen=True)
class RegionFamily(Family):
    """One reader behind the detector. With `layer_text`, text regions take the words of a complete text layer."""

    model: Model
    layer_text: bool = False

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def reader(self) -> RegionReader:
        return READERS[self.model.family]

    @property
    def revision(self) -> str:
        return f"{self.model.weights.revision}+{detected_page.DETECTOR_REVISION}"

    @property
    def options(self) -> Mapping[str, Any]:
        """Without the structure, because there is no other."""
        return MappingProxyType({"layer_text": True} if self.layer_text else {})

    def configure(self, options: FamilyOptions) -> Self:
        resolve_structure(options.structure, self.name)
        return replace(self, layer_text=options.layer_text)

    @property
    def prompts(self) -> Mapping[str, str]:
        return MappingProxyType({"page": DETECT, **{str(task): text for task, text in self.reader.prompts.items()}})

    @property
    def sampling(self) -> Mapping[str, Any]:
        """No n-gram ban: the readers were not trained with one, and a region is short."""
        return MappingProxyType(
            {
                "ngram": 0,
                "allowed_tokens": (),
                "max_tokens": self.reader.max_tokens,
                "repetition_penalty": self.reader.repetition_penalty,
            }
        )

    @property
    def canary(self) -> CanaryQuestion:
        return CanaryQuestion(Task.TEXT, self.reader.prompts[Task.TEXT], "auto")

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """One attempt: the detector's answers do not vary."""
        return _LADDER

    def parse(self, text: str, page: int, rung: Rung = DETECTION, layer: TextLayer = NO_LAYER) -> ParsedPage:
        """Elements without text, in reading order; words that the detector missed have elements, too.

        With a task as the grammar, the one element that an answer about a region of this kind describes.
        """
        if rung.grammar in set(Task):
            return self._parse_region(text, page, Task(rung.grammar))
        parser = DetectionParser(lambda label: self._choose_task(label) is not None, with_text, self.layer_text)
        return parser.parse(text, page, layer)

    def _parse_region(self, text: str, page: int, task: Task) -> ParsedPage:
        kind, figure = KINDS[task], Figure() if KINDS[task] in FIGURES else None
        element = Element(id=make_element_id(page, 0), page=page, category=kind.category, kind=kind, figure=figure)
        read = self.apply_replies(element, [Reply(Question(task, self.reader.prompts.get(task, "")), text)])
        if Flag.UNREAD_REGION in read.flags:
            return ParsedPage((), Code.EMPTY)
        return ParsedPage((read,), Code.LOOP if Flag.REPETITION_CUT in read.flags else None)

    @property
    def region_grammars(self) -> frozenset[str]:
        return frozenset(map(str, Task))

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        words = [] if cleanup.is_boilerplate(text) else word_account.list_words(text)
        return word_account.compare(words, elements)

    def is_looping(self, text: str) -> bool:
        return loops.find_repetition(text) is not None

    def next_question(self, context: ElementContext) -> Question | None:
        """One question about every region that the reader reads, unless its text is known and not doubtful."""
        if context.replies or not context.element.needs_reading:
            return None
        task = self._choose_task(detected_page.find_label(context.element))
        return Question(task, self.reader.prompts[task]) if task else None

    def _choose_task(self, label: Label | None) -> Task | None:
        return self.reader.tasks.get(label) if label else Task.TEXT

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return apply_reply(element, replies[-1], self.reader) if replies else element

    def finish_page(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        return add_missing_bullets(formula_numbers.merge(elements, self.reader.tag))

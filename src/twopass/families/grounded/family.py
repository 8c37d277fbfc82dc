"""What families of models share whose answers about pages carry boxes.

A layout detector may find the regions of their pages. Pictures are shown in the smallest mode that loses no detail.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from twopass.detection.region import DETECT
from twopass.document import Element, Flag, RungName
from twopass.families import captions, detected_page, formula_numbers, word_account
from twopass.families.grounded import grounding, loops, second_reading
from twopass.families.grounded.elements import is_label, restore_headings
from twopass.families.interface import CropRange, Family, FamilyOptions, PageFeatures, ParsedPage, Reply, Rung
from twopass.families.word_account import WordAccount
from twopass.models import Model, Structure, resolve_structure
from twopass.pages.text_layer import NO_LAYER, TextLayer

DOCUMENT = "document"  # the task and the prompt of whole pages, and the grammar of their answers
_AS_DOCUMENT = Rung(RungName.NORMAL, "")


class ModeLimits(NamedTuple):
    """The limits of size and amount of text up to which a mode shows a picture without losing detail.

    `side` is the longer side in pixels, `aspect` the longer side over the shorter one, `ink` the inked share of the
    picture, `characters` the number of characters on it.
    """

    mode: str
    side: float = float("inf")
    aspect: float = float("inf")
    ink: float = 1.0
    characters: float = float("inf")


def choose_mode(limits: Sequence[ModeLimits], shown: PageFeatures) -> str:
    """The mode of the first row that fits; the last row has no limits."""
    long, short = max(shown.width, shown.height, 1), max(min(shown.width, shown.height), 1)
    fitting = (
        row
        for row in limits
        if long <= row.side
        and long / short <= row.aspect
        and shown.ink <= row.ink
        and shown.characters <= row.characters
    )
    return next(fitting).mode


@dataclass(frozen=True)
class GroundedFamily(Family):
    """One model. With `layer_text`, detected regions of text take the words of a complete text layer."""

    model: Model
    structure: Structure = Structure.MODEL
    layer_text: bool = False

    @property
    @abstractmethod
    def page_prompts(self) -> Mapping[str, str]:
        """The model's own prompts; the one that detects regions is added to them."""

    @abstractmethod
    def parse_answer(self, text: str, page: int, rung: Rung, layer: TextLayer) -> ParsedPage:
        """Parse an answer of the model about one page; captions are linked later."""

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def revision(self) -> str:
        own = self.model.weights.revision
        return own if self.structure is Structure.MODEL else f"{own}+{detected_page.DETECTOR_REVISION}"

    @property
    def options(self) -> Mapping[str, Any]:
        if self.structure is Structure.MODEL:  # without regions, `layer_text` has no effect
            return MappingProxyType({})
        layer_text = {"layer_text": True} if self.layer_text else {}
        return MappingProxyType({"structure": str(self.structure), **layer_text})

    def configure(self, options: FamilyOptions) -> Self:
        structure = resolve_structure(options.structure, self.name)
        return replace(self, structure=structure, layer_text=options.layer_text)

    @property
    def prompts(self) -> Mapping[str, str]:
        regions = {} if self.structure is Structure.MODEL else {detected_page.REGIONS: DETECT}
        return MappingProxyType({**self.page_prompts, **regions})

    @property
    def crops(self) -> CropRange:
        return CropRange(self.model.vision.default_crops, self.model.vision.most_crops)

    @property
    def modes(self) -> frozenset[str]:
        return frozenset({"auto", *self.model.vision.modes})

    def add_detection(self, own: Sequence[Rung], last: int) -> tuple[Rung, ...]:
        """Add the detection to the model's own rungs, as the structure says: as the first, or before rung `last`.

        A page that is detected is read at once if that fails; one that cannot be read at once is detected.
        """
        if self.structure is Structure.DETECTOR:
            first, *others = own
            return detected_page.DETECTION, first.renamed(RungName.WHOLE), *others
        if self.structure is Structure.FALLBACK:
            return *own[:last], detected_page.DETECTION.renamed(RungName.REGIONS), *own[last:]
        return tuple(own)

    def parse(self, text: str, page: int, rung: Rung = _AS_DOCUMENT, layer: TextLayer = NO_LAYER) -> ParsedPage:
        if rung.grammar == detected_page.REGIONS:
            return second_reading.build_detection_parser(self.layer_text).parse(text, page, layer)
        text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be written as JSON
        parsed = self.parse_answer(text, page, rung, layer)
        parsed = replace(parsed, elements=captions.link(parsed.elements))
        return _flag_tables(parsed) if rung.sampling else parsed

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        words = word_account.list_words(grounding.strip_tags(text, is_label))
        labels = [label for element in elements if (label := element.native_label) and not is_label(label)]
        written = restore_headings(elements)
        found = word_account.compare(words, written, [label for label in labels if " " in label])
        # A label of one word is text where nothing stands below it, and in no other place.
        unsure = set(word_account.list_words(" ".join(grounding.list_labels(text)))) if found.repeated else ()
        return found._replace(repeated=tuple(word for word in found.repeated if word not in unsure))

    def is_looping(self, text: str) -> bool:
        return loops.is_in_loop(text)

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return second_reading.apply_replies(element, replies)

    def finish_page(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        return formula_numbers.merge(elements)


def _flag_tables(parsed: ParsedPage) -> ParsedPage:
    """Flag the tables, and figures with data, of an answer that was sampled with a stricter n-gram ban."""
    flagged = (
        element.with_flags(Flag.REPEATS_LIMITED)
        if element.table or (element.figure and element.figure.data)
        else element
        for element in parsed.elements
    )
    return replace(parsed, elements=tuple(flagged))

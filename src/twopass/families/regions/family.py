"""The family of region readers: pass 1 is the detector's JSON, pass 2 asks the reader about each region."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from twopass.detection import polygons, reading_order, recall, region, suppression
from twopass.detection.region import DETECT
from twopass.document import Element
from twopass.errors import Code
from twopass.families.grounded import loops
from twopass.families.interface import (
    NORMAL,
    CanaryQuestion,
    CropRange,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.families.regions import elements
from twopass.families.regions.reader import RegionReader, Task
from twopass.pages.text_layer import NO_LAYER, TextLayer

DETECTOR_REVISION = "pp-doclayout-v3"
LADDER = (Rung(NORMAL, DETECT, grammar="regions"),)
ORDER_CORRECTED = "order_corrected"  # page flags
REGIONS_DROPPED = "degenerate_regions"
SAMPLING: Mapping[str, Any] = MappingProxyType({"ngram": 0, "allowed_tokens": ()})


@dataclass(frozen=True)
class RegionFamily:
    """One reader behind the detector. With `use_layer`, text regions take the words of a complete text layer."""

    reader: RegionReader
    use_layer: bool = False

    @property
    def name(self) -> str:
        return self.reader.name

    @property
    def revision(self) -> str:
        return f"{self.reader.revision}+{DETECTOR_REVISION}" + ("+layer" if self.use_layer else "")

    @property
    def prompts(self) -> Mapping[str, str]:
        return MappingProxyType({"page": DETECT, **{str(task): text for task, text in self.reader.prompts.items()}})

    @property
    def sampling(self) -> Mapping[str, Any]:
        """No n-gram ban: the readers were not trained with one, and a region is short."""
        return SAMPLING

    @property
    def crops(self) -> CropRange:
        """The readers see a region as one image."""
        return CropRange()

    @property
    def canary(self) -> CanaryQuestion:
        return CanaryQuestion(Task.TEXT, self.reader.prompts[Task.TEXT])

    def strip_grammar(self, text: str) -> str:
        return text  # readers write no tags

    @property
    def modes(self) -> frozenset[str]:
        """Only auto: the readers have no modes."""
        return frozenset({"auto"})

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({"document"})

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """One attempt: the detector's answers do not vary."""
        return LADDER

    def parse(self, text: str, page: int, rung: Rung = LADDER[0], layer: TextLayer = NO_LAYER) -> ParsedPage:
        """Elements without text, in reading order; words that the detector missed have elements, too."""
        try:
            detection = region.parse(text)
        except ValueError:
            return ParsedPage((), Code.UNGROUNDED, ("unparsed",))
        repaired = polygons.repair(detection.regions)
        kept = suppression.select(repaired.regions, detection.is_landscape)
        guarded = recall.add_missed(kept, layer, detection.ink)
        ordered = reading_order.sort(guarded)
        is_complete = self.use_layer and recall.is_layer_complete(kept, layer)
        flags = {ORDER_CORRECTED: ordered.contradictions, REGIONS_DROPPED: repaired.dropped}
        return ParsedPage(
            elements.build_elements(ordered.regions, page, layer if is_complete else None),
            flags=tuple(flag for flag, count in flags.items() if count),
        )

    def is_looping(self, text: str) -> bool:
        return loops.find_repetition(text) is not None

    def next_question(
        self,
        element: Element,
        ask_all: bool,
        crop_size: tuple[int, int],
        page_elements: Sequence[Element],
        replies: Sequence[Reply] = (),
        descriptions: str = "all",
    ) -> Question | None:
        """One question about every region that the reader reads, unless its text is known already."""
        if replies or element.text:
            return None
        task = self._find_task(element)
        return Question(task, self.reader.prompts[task]) if task else None

    def _find_task(self, element: Element) -> Task | None:
        found = region.find_label(element.native_label or "")
        return self.reader.tasks.get(found) if found else Task.TEXT

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return elements.apply_reply(element, replies[-1], self.reader) if replies else element

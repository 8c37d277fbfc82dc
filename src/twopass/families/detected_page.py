"""Pages that a layout detector divides into regions, for every family: its answer as elements without text.

What a region becomes is decided here; how its text is asked for, and written into its element, by the family.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twopass.detection import polygons, reading_order, recall, region, suppression
from twopass.detection.labels import RULES, Label
from twopass.detection.region import DETECT, Region
from twopass.document import HEADINGS, Element, Figure, Flag, Formula, Kind, Layer, RungName, make_element_id
from twopass.errors import Code
from twopass.families import captions
from twopass.families.interface import ParsedPage, Rung
from twopass.pages.text_layer import NO_LAYER, TextLayer
from twopass.text import hyphenation, prose
from twopass.text.confidence import judge_unknown_layer

DETECTOR_REVISION = "pp-doclayout-v3"
REGIONS = "regions"  # the grammar of a detection, and the name of its prompt
DETECTION = Rung(RungName.NORMAL, DETECT, grammar=REGIONS, is_transcript=False)
_HEADER_HALF = 0.5  # of the page's height: a page number above it is in the header
_LAYER_KINDS = frozenset(
    {Kind.TEXT, Kind.TITLE, Kind.SECTION_HEADER, Kind.CAPTION, Kind.FOOTNOTE, Kind.PAGE_HEADER, Kind.PAGE_FOOTER}
)

WriteText = Callable[[Element, str], Element]  # the element with this text


@dataclass(frozen=True)
class DetectionParser:
    """Parses detections for one family.

    `is_read` says of which regions the family reads the text, by their label (None is an unknown one). With
    `layer_text`, regions of text take the words of a complete text layer.
    """

    is_read: Callable[[Label | None], bool]
    write_text: WriteText
    layer_text: bool = False

    def parse(self, text: str, page: int, layer: TextLayer = NO_LAYER) -> ParsedPage:
        """Elements in reading order; words that the detector missed have elements, too."""
        try:
            detection = region.parse(text)
        except ValueError:
            return ParsedPage((), Code.UNGROUNDED, (Flag.UNPARSED,))
        repaired = polygons.repair(detection.regions)
        kept = suppression.select(repaired.regions, detection.is_landscape)
        guarded = recall.add_missed(kept, layer, detection.ink)
        ordered = reading_order.sort(guarded)
        flags = {Flag.ORDER_CORRECTED: ordered.contradictions, Flag.DEGENERATE_REGIONS: repaired.dropped}
        found = tuple(flag for flag, count in flags.items() if count)
        takes_words = self.layer_text and recall.is_layer_complete(kept, layer)
        return ParsedPage(self._build_elements(ordered.regions, page, layer, takes_words, found), flags=found)

    def _build_elements(
        self, regions: Sequence[Region], page: int, layer: TextLayer, takes_words: bool, flags: Sequence[Flag]
    ) -> tuple[Element, ...]:
        built = []
        for index, one in enumerate(regions):
            element = _build_element(one, make_element_id(page, index), page)
            if takes_words:
                element = self._take_words(element, layer)
            if not self.is_read(one.label):
                element = _keep_visible_words(element, layer)
            if self.is_read(one.label) and not element.text:
                element = element.with_flags(Flag.UNREAD_REGION)
            built.append(element.with_flags(*flags))
        return captions.link(built, labels_differ=False)  # figure_title is the label of both

    def _take_words(self, element: Element, layer: TextLayer) -> Element:
        is_filled = element.kind in _LAYER_KINDS and all(recall.find_filled(element.boxes, layer))
        words = layer.inside(element.boxes) if is_filled else ""
        if not words or prose.is_garbage(words):
            return element
        confidence, doubts = judge_unknown_layer(words)
        text = hyphenation.restore_line_ends(words)
        read = self.write_text(element, text).with_flags(Flag.LAYER_TEXT, *doubts)
        return read.model_copy(update={"confidence": confidence})


def _build_element(one: Region, element_id: str, page: int) -> Element:
    kind, layer = (RULES[one.label].kind, RULES[one.label].layer) if one.label else (Kind.TEXT, Layer.BODY)
    if one.label is Label.NUMBER and one.box.centre[1] < _HEADER_HALF:
        kind = Kind.PAGE_HEADER
    return Element(
        id=element_id,
        page=page,
        category=kind.category,
        kind=kind,
        native_label=one.native_label.encode("utf-8", "replace").decode(),  # else it may not fit into JSON
        boxes=(one.box,),
        content_layer=layer,
        level=(1 if kind is Kind.TITLE else 2) if kind in HEADINGS else None,
        figure=Figure() if kind in (Kind.PICTURE, Kind.CHART) else None,
        formula=Formula() if kind is Kind.FORMULA else None,
        flags=(Flag.MISSED_BY_DETECTOR,) if one.order is None else (),
    )


def _keep_visible_words(element: Element, layer: TextLayer) -> Element:
    """A picture that is not read, with the words that the text layer has in it."""
    words = layer.inside(element.boxes) if element.figure else ""
    if not element.figure or not words or prose.is_garbage(words):
        return element
    visible = hyphenation.restore_line_ends(words)
    return element.model_copy(update={"figure": element.figure.model_copy(update={"visible_text": visible})})


def find_label(element: Element) -> Label | None:
    """The label of a detected region; None for one that is not known."""
    return region.find_label(element.native_label or "")


def fall_back(element: Element, words: str | None, write_text: WriteText) -> Element:
    """The element of a region that was not read: with the text layer's words where it has some, else still unread."""
    if not words or not words.strip() or prose.is_garbage(words):
        return element.with_flags(Flag.UNREAD_REGION)
    text = hyphenation.restore_line_ends(words)
    return write_text(element.without_flag(Flag.UNREAD_REGION), text).with_flags(Flag.FROM_TEXT_LAYER)

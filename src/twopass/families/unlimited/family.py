"""The Unlimited-OCR family: its prompt and modes, and the parser of the answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from twopass.document import Element
from twopass.families import detected_page, formula_numbers
from twopass.families.grounded import element_prompts, grounding, loops, modes, page_answer
from twopass.families.grounded.element_prompts import QuestionName
from twopass.families.grounded.modes import ModeLimits
from twopass.families.interface import (
    NORMAL,
    UNREAD,
    CanaryQuestion,
    CropRange,
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
from twopass.families.unlimited import grammar
from twopass.models import Model, Structure, resolve_structure
from twopass.pages.text_layer import NO_LAYER, TextLayer

# Word for word as in infer.py and README of baidu/Unlimited-OCR: no line end after the image, no space at the end. The
# model was trained with this prompt and one for several pages; it misreads or ignores those of DeepSeek-OCR.
DOCUMENT = "document"
PROMPTS: Mapping[str, str] = MappingProxyType({DOCUMENT: "<image>document parsing."})
# As in infer.py. Without the ban, boxes loop; with shorter n-grams, tables and repeated words are misread.
SAMPLING: Mapping[str, Any] = MappingProxyType({"ngram": 35, "window": 128, "allowed_tokens": ()})
# Some randomness, so that an answer that was empty or in a loop is not given again, and the window for several pages.
RETRY_SAMPLING: Mapping[str, Any] = MappingProxyType({"temperature": 0.2, "window": 1024})
# Tiles show what a view of 1,024 pixels does not: without them, OmniDocBench falls from 92.4 to 88.8.
PAGE_MODES = (
    ModeLimits("base", side=640, characters=2500),  # not tiled in gundam either
    ModeLimits("base", ink=0.04, characters=800),
    ModeLimits("gundam"),
)
OTHER_MODE = MappingProxyType({"base": "gundam", "gundam": "base"})
# Pixels, of the longer side: the model invents text in small crops, and cuts larger ones into tiles.
MIN_CROP_SIDE = 640
CANARY_NGRAM = 8  # tokens: shorter than the line that must not be repeated, longer than what coordinates share
NORMAL_RUNG = Rung(NORMAL, PROMPTS[DOCUMENT])


@dataclass(frozen=True)
class UnlimitedOcrFamily(Family):
    """Unlimited-OCR, one page at a time.

    An image is cut into `max_tiles` at most, by default as `model` says. With `layer_text`, detected regions of text
    take the words of a complete text layer.
    """

    model: Model
    max_tiles: int | None = None
    structure: Structure = Structure.MODEL
    layer_text: bool = False

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def revision(self) -> str:
        return detected_page.add_revision(self.model.weights.revision, self.structure)

    @property
    def options(self) -> Mapping[str, Any]:
        """With another number of tiles than the usual one, which changes what is read."""
        tiles = {"max_tiles": self.max_tiles} if self.max_tiles else {}
        return MappingProxyType({**detected_page.name_options(self.structure, self.layer_text), **tiles})

    def configure(self, options: FamilyOptions) -> Self:
        is_usual = options.max_tiles == self.model.vision.default_crops
        return replace(
            self,
            max_tiles=None if is_usual else options.max_tiles,
            structure=resolve_structure(options.structure, self.name),
            layer_text=options.layer_text,
        )

    @property
    def crops(self) -> CropRange:
        spec = self.model.vision.with_crops(self.max_tiles)
        return CropRange(spec.default_crops, spec.most_crops)

    @property
    def prompts(self) -> Mapping[str, str]:
        return detected_page.add_prompt(PROMPTS, self.structure)

    @property
    def sampling(self) -> Mapping[str, Any]:
        return SAMPLING

    @property
    def canary(self) -> CanaryQuestion:
        return CanaryQuestion(QuestionName.TEXT, PROMPTS[DOCUMENT], "gundam", ngram=CANARY_NGRAM)

    @property
    def modes(self) -> frozenset[str]:
        return frozenset({"auto", *OTHER_MODE})

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({DOCUMENT, "custom"})

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """The prompt; the same with RETRY_SAMPLING; another mode. The model has no prompt for text without boxes.

        A page that is detected is read at once if that fails; one that cannot be read at once is detected.
        """
        mode = request.mode
        if mode == "auto":
            mode = modes.choose(PAGE_MODES, features.width, features.height, features.ink, features.characters)
        prompt = request.prompt if request.task == "custom" and request.prompt else PROMPTS[DOCUMENT]
        normal = Rung(NORMAL, prompt, mode, request.task)
        again = replace(normal, name="again", sampling=RETRY_SAMPLING)
        if request.task != DOCUMENT:
            return normal, again
        other = replace(again, name="mode", mode=OTHER_MODE[mode])
        return detected_page.add_to_ladder((normal, again, other), self.structure, last=3)

    def parse(self, text: str, page: int, rung: Rung = NORMAL_RUNG, layer: TextLayer = NO_LAYER) -> ParsedPage:
        if rung.grammar == detected_page.REGIONS:
            return element_prompts.build_detection_parser(self.layer_text).parse(text, page, layer)
        text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be written as JSON
        read = page_answer.read_blocks(grammar.drop_page_marks(text))
        blocks, lists = grammar.split_lists(grammar.clean_blocks(read.blocks))
        parsed = page_answer.build_page(blocks, read.reason, page, layer)
        parsed = replace(parsed, elements=grammar.set_kinds(parsed.elements, lists, page))
        parsed = page_answer.flag_tables(parsed) if rung.sampling else parsed
        return page_answer.require_boxes(parsed, read) if rung.grammar == DOCUMENT else parsed

    def is_looping(self, text: str) -> bool:
        return loops.is_in_loop(text)

    def strip_grammar(self, text: str) -> str:
        return "\n".join(block.content.strip() for block in grounding.parse(grammar.drop_page_marks(text)).blocks)

    def next_question(self, context: ElementContext) -> Question | None:
        """Ask about large tables, formulas and doubtful texts, and about detected regions of any size.

        The model has no prompts for figures.
        """
        element = context.element
        if element.is_figure or (max(context.crop_size) <= MIN_CROP_SIDE and UNREAD not in element.flags):
            return None
        replies = _clean_replies(context.replies)
        name = element_prompts.choose_question(replace(context, replies=replies), self.model.reads_figures)
        if name is None:
            return None
        sampling = RETRY_SAMPLING if element_prompts.is_asked_again(name, replies) else {}
        return Question(name, PROMPTS[DOCUMENT], "gundam", sampling)

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        return element_prompts.apply_replies(element, _clean_replies(replies))

    def finish_page(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        return formula_numbers.merge(elements)


def _clean_replies(replies: Sequence[Reply]) -> list[Reply]:
    return [replace(reply, text=grammar.clean_reply(reply.text)) for reply in replies]

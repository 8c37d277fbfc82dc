"""The DeepSeek-OCR family: prompts and modes for pages and crops, and the parser of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from twopass.document import Element, Kind, RungName, make_element_id
from twopass.errors import Code
from twopass.families.grounded import answer_text, elements, grounding, loops, page_answer, second_reading
from twopass.families.grounded.family import DOCUMENT, GroundedFamily, ModeLimits, choose_mode
from twopass.families.grounded.grounding import Block
from twopass.families.grounded.second_reading import QuestionName
from twopass.families.interface import (
    CanaryQuestion,
    ElementContext,
    FamilyOptions,
    PageFeatures,
    PageRequest,
    ParsedPage,
    Question,
    Reply,
    Rung,
)
from twopass.pages.text_layer import TextLayer

# Word for word as in training: config.py and README of deepseek-ai/DeepSeek-OCR.
PROMPTS: Mapping[str, str] = MappingProxyType(
    {
        "document": "<image>\n<|grounding|>Convert the document to markdown.",
        "image": "<image>\n<|grounding|>OCR this image.",
        "free": "<image>\nFree OCR.",
        "figure": "<image>\nParse the figure.",
        "describe": "<image>\nDescribe this image in detail.",
        "locate": "<image>\nLocate <|ref|>{wanted}<|/ref|> in the image.",
    }
)
QUESTION_PROMPTS: Mapping[QuestionName, str] = MappingProxyType(
    {
        QuestionName.TABLE: PROMPTS["document"],
        QuestionName.TEXT: PROMPTS["free"],
        QuestionName.VISIBLE_TEXT: PROMPTS["free"],
        QuestionName.FIGURE_DATA: PROMPTS["figure"],
        QuestionName.DESCRIPTION: PROMPTS["describe"],
    }
)
# Tasks whose answer about a page is parsed like pass 2's reply about a figure.
_FIGURE_TASKS = MappingProxyType({"figure": QuestionName.FIGURE_DATA, "describe": QuestionName.DESCRIPTION})
# Some randomness, so that the model does not enter the same loop again, and a wider window for the n-gram ban, which
# stops loops of up to 227 tokens (61 in the window of 90). The n-grams stay as long as usual: of the tokens of a table
# only <td> and </td> may repeat, and with n-grams of 10 the fifth equal cell of a row gets another number.
_RETRY_SAMPLING: Mapping[str, Any] = MappingProxyType({"temperature": 0.2, "ngram": 30, "window": 256})
_PLAIN = "plain"  # a grammar of answers beside DOCUMENT; any other has the name of its task


# The first row that fits is used. A vision token carries about ten text tokens (at ten, 97 % of the text is read
# correctly, at twenty 60 %: figure 1 of the paper). These rows stay near six, about 24 Latin or 9 Chinese characters.
# `ink` replaces `characters` where there is no text layer; a page must be within both limits.
_PAGE_MODES = (
    # 64 tokens show 512 px at full size, but stretched to a square: nothing long or narrow, and very little text.
    ModeLimits("tiny", side=512, aspect=1.5, ink=0.15, characters=600),
    # 100 tokens, 640 px: over 97 % of 600 to 700 text tokens in the paper; 1,000 characters leave room for Chinese.
    ModeLimits("small", side=640, aspect=1.5, ink=0.2, characters=1000),
    # 256 tokens, padded and not stretched: up to 1,024 px nothing is scaled down, so only the amount of text counts.
    ModeLimits("base", side=1024, ink=0.25, characters=2500),
    # A4 at 144 dpi is scaled to 0.6 in base: enough for a title page, a slide or a letter; small print needs tiles.
    ModeLimits("base", ink=0.04, characters=800),
    # 400 tokens show 1,280 px at full size, a slide of 1,440 px almost: as sharp as tiles, half the tokens, no seams.
    ModeLimits("large", side=1440, ink=0.2, characters=3000),
    # Everything else, mostly A4 with running text: tiles of 640 px and the whole page, 903 tokens.
    ModeLimits("gundam"),
)
# A crop has few words and must be read correctly: never tiny, and tiles only where it would be scaled down.
_CROP_MODES = (
    ModeLimits("base", side=1024),
    ModeLimits("large", side=1440),  # half a page, almost at full size
    ModeLimits("gundam"),  # whole-page tables
)
# SMALL_CROPS: up to 640 px at full size, padded where it is long and narrow: a formula, a small table. A larger view
# enlarges it without showing more, for four times the encoder's work and 273 image positions instead of 111. The
# official code stretches such pictures and never pads them, so it is unknown how well the model reads them.
_SMALL_CROP_MODES = (ModeLimits("small", side=640), *_CROP_MODES)
# The mode to retry a page in: a larger view or tiles; after tiles, a mode without them.
_OTHER_MODE = MappingProxyType(
    {"tiny": "base", "small": "base", "base": "gundam", "large": "gundam", "gundam": "large"}
)

# DeepSeek-OCR-2 has one view of 1,024 px with 256 tokens and tiles of 768 px with 144 tokens each, and nothing smaller.
_PAGE_MODES_2 = (
    ModeLimits("base", side=768, characters=2500),  # not tiled in gundam either
    ModeLimits("base", ink=0.04, characters=800),
    ModeLimits("gundam"),
)
_CROP_MODES_2 = (ModeLimits("base", side=1024), ModeLimits("gundam"))
_OTHER_MODE_2 = MappingProxyType({"base": "gundam", "gundam": "base"})


@dataclass(frozen=True)
class DeepseekOcrFamily(GroundedFamily):
    """One model of the line. With `small_crops`, small crops are read at their own size."""

    small_crops: bool = False

    @property
    def options(self) -> Mapping[str, Any]:
        small = {"small_crops": True} if self.small_crops else {}
        return MappingProxyType({**super().options, **small})

    def configure(self, options: FamilyOptions) -> Self:
        small = options.small_crops and self._has_small_modes
        return replace(super().configure(options), small_crops=small)

    @property
    def _has_small_modes(self) -> bool:
        return "small" in self.model.vision.modes

    def choose_crop_mode(self, size: tuple[int, int]) -> str:
        """The smallest mode that shows a crop of this width and height in pixels without losing detail."""
        own = _SMALL_CROP_MODES if self.small_crops else _CROP_MODES
        return choose_mode(own if self._has_small_modes else _CROP_MODES_2, PageFeatures(*size))

    @property
    def page_prompts(self) -> Mapping[str, str]:
        return PROMPTS if self.model.reads_figures else {name: PROMPTS[name] for name in (DOCUMENT, "free")}

    @property
    def canary(self) -> CanaryQuestion:
        # gundam exercises both views of the model, the whole page and the tiles.
        return CanaryQuestion(QuestionName.TEXT, QUESTION_PROMPTS[QuestionName.TEXT], "gundam")

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({*self.page_prompts, "custom"})

    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """The prompt; the same with _RETRY_SAMPLING; another mode; a prompt for text without boxes."""
        modes, other_mode = (_PAGE_MODES, _OTHER_MODE) if self._has_small_modes else (_PAGE_MODES_2, _OTHER_MODE_2)
        mode = choose_mode(modes, features) if request.mode == "auto" else request.mode
        is_transcript = _FIGURE_TASKS.get(request.task) is not QuestionName.DESCRIPTION
        normal = Rung(RungName.NORMAL, _task_prompt(request), mode, request.task, is_transcript=is_transcript)
        again = replace(normal, name=RungName.AGAIN, sampling=_RETRY_SAMPLING)
        if request.task != DOCUMENT:
            return normal, again
        other = replace(again, name=RungName.MODE, mode=other_mode[mode])
        free = replace(again, name=RungName.FREE, prompt=PROMPTS["free"], grammar=_PLAIN)
        return self.add_detection((normal, again, other, free), last=3)

    def parse_answer(self, text: str, page: int, rung: Rung, layer: TextLayer) -> ParsedPage:
        if rung.grammar == DOCUMENT:
            return page_answer.parse_document(text, page, layer)
        if rung.grammar == _PLAIN:
            return page_answer.parse_text(text, page, layer)
        return _parse_task_answer(text, page, rung)

    def next_question(self, context: ElementContext) -> Question | None:
        name = second_reading.choose_question(context, self.model.reads_figures)
        if name is None:
            return None
        sampling = _RETRY_SAMPLING if second_reading.is_asked_again(name, context.replies) else {}
        is_transcript = name is not QuestionName.DESCRIPTION
        return Question(name, QUESTION_PROMPTS[name], self.choose_crop_mode(context.crop_size), sampling, is_transcript)


def _task_prompt(request: PageRequest) -> str:
    if request.task == "custom" and request.prompt:
        return request.prompt
    return PROMPTS[request.task].replace("{wanted}", request.prompt or "")


def _parse_task_answer(text: str, page: int, rung: Rung) -> ParsedPage:
    """Parse the answer to a task other than `document`: one element with all boxes of the answer."""
    answer = grounding.parse(text, any_label=True)
    boxes = tuple(box for block in answer.blocks for box in block.boxes)
    content = "\n".join(line for block in answer.blocks for line in _block_lines(block, rung.grammar))
    if not content and not boxes:
        return ParsedPage()
    name = _FIGURE_TASKS.get(rung.grammar)
    kind = Kind.PICTURE if name else Kind.TEXT
    element = Element(id=make_element_id(page, 0), page=page, category=kind.category, kind=kind, boxes=boxes)
    if name:
        element = second_reading.apply_replies(element, (Reply(Question(name, rung.prompt), text),))
        element = second_reading.add_answer_text(element, content[: loops.find_repetition(content)])
        element = element.model_copy(update={"read_by": 1})
    else:
        element = elements.with_content(element, content)
    reason = Code.LOOP if loops.has_loop(text) else Code.TRUNCATED if answer.cut_off else None
    return ParsedPage((element,), reason)


def _block_lines(block: Block, task: str) -> list[str]:
    """A block's text. For the tasks `image` and `locate` the model writes the text where a label usually is."""
    label = (block.label or "") if task in ("image", "locate") or not block.content.strip() else ""
    return [line for line in (label, answer_text.clean_prose(block.content)) if line]

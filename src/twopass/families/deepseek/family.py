"""What DeepSeek-OCR is asked, rung by rung and crop by crop, and how its answers become elements.

Knows the model's prompts, modes and sampling. Knows nothing of engines, files or neighbouring pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from twopass.document import Element, Kind, element_id
from twopass.errors import Code
from twopass.families import text_layer_check
from twopass.families.deepseek import answer_text as prose
from twopass.families.deepseek import element_prompts, elements, grounding, loops
from twopass.families.deepseek.grounding import Block
from twopass.families.interface import NORMAL, Answer, Asked, Look, Question, Reply, Rung
from twopass.pages.text_layer import NO_LAYER, TextLayer

# Word for word as the model was trained on them: config.py and README of deepseek-ai/DeepSeek-OCR.
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
AGAIN: Mapping[str, Any] = MappingProxyType({"temperature": 0.2, "ngram": 10, "window": 256})  # off the beaten loop
DOCUMENT, PLAIN = "document", "plain"  # grammars of answers; other tasks' are called like the task
FIRST = Rung(NORMAL, PROMPTS[DOCUMENT])


class Row(NamedTuple):
    """A mode, and up to which picture it loses nothing: sides and stretching as drawn, and how much may be on it."""

    mode: str
    side: float = float("inf")
    aspect: float = float("inf")
    ink: float = 1.0
    characters: float = float("inf")


# The first row that fits. A vision token carries about ten text tokens (at ten 97 % of the text comes back, at twenty
# 60 %: the paper's figure 1); these rows stay near six, about 24 Latin characters or 9 Chinese ones. `ink` stands in
# for `characters` where there is no text layer, and both are limits: a page passes a row only by both.
PAGE_MODES = (
    # 64 tokens see 512 px undiminished, but stretched to a square: nothing long or narrow, and a stamp's worth of text.
    Row("tiny", side=512, aspect=1.5, ink=0.15, characters=600),
    # 100 tokens, 640 px: the paper keeps over 97 % of 600 to 700 text tokens; 1,000 characters leave room for Chinese.
    Row("small", side=640, aspect=1.5, ink=0.2, characters=1000),
    # 256 tokens, padded, not stretched: up to 1,024 px nothing shrinks, so only the amount of text counts.
    Row("base", side=1024, ink=0.25, characters=2500),
    # A4 at 144 dpi shrinks to 0.6 in base: good for a title page, a slide, a letter; small print needs tiles.
    Row("base", ink=0.04, characters=800),
    # 400 tokens see 1,280 px undiminished, a slide of 1,440 hardly less: as sharp as tiles, half the tokens, no seams.
    Row("large", side=1440, ink=0.2, characters=3000),
    # Everything else, A4 with running text above all: tiles of 640 px over the page, 903 tokens.
    Row("gundam"),
)
# A crop is one thing with few words, and asked about because it must be right: never tiny, tiles only where it shrinks.
CROP_MODES = (
    # Up to 640 px undiminished, padded where it is long and narrow: a formula, a small table. A larger view would draw
    # it larger and show nothing more, for four times the encoder's work and 273 places instead of 111.
    Row("small", side=640),
    Row("base", side=1024),
    Row("large", side=1440),  # half a page, hardly diminished
    Row("gundam"),  # whole-page tables
)
# A page that went wrong in one mode is seen otherwise in another: tiles where there were none, and the reverse.
OTHER_MODE = MappingProxyType({"tiny": "base", "small": "base", "base": "gundam", "large": "gundam", "gundam": "large"})

# DeepSeek-OCR-2 has one view of 1,024 px with 256 tokens and tiles of 768 px with 144 each, and nothing smaller.
PAGE_MODES_2 = (
    Row("base", side=768, characters=2500),  # not tiled in gundam either
    Row("base", ink=0.04, characters=800),
    Row("gundam"),
)
CROP_MODES_2 = (Row("base", side=1024), Row("gundam"))
OTHER_MODE_2 = MappingProxyType({"base": "gundam", "gundam": "base"})


@dataclass(frozen=True)
class DeepseekOcrFamily:
    """DeepSeek-OCR: a plain value; what differs between the model's versions is in its fields."""

    name: str = "deepseek_ocr"
    revision: str = "9f30c71f441d010e5429c532364a86705536c53a"
    page_modes: tuple[Row, ...] = PAGE_MODES
    crop_modes: tuple[Row, ...] = CROP_MODES
    knows_figures: bool = True

    @property
    def prompts(self) -> Mapping[str, str]:
        return PROMPTS if self.knows_figures else MappingProxyType({n: PROMPTS[n] for n in ("document", "free")})

    @property
    def canary(self) -> Question:
        return Question(PROMPTS["free"], "gundam")  # which has both views: the whole and tiles

    @property
    def modes(self) -> frozenset[str]:
        return frozenset({"auto", *(row.mode for row in self.page_modes)})

    @property
    def tasks(self) -> frozenset[str]:
        return frozenset({*self.prompts, "custom"})

    def ladder(self, look: Look, asked: Asked) -> tuple[Rung, ...]:
        """The prompt, the same with a tighter ban and a little chance, another mode, and no boxes at all."""
        mode = page_mode(look, self.page_modes) if asked.mode == "auto" else asked.mode
        normal = Rung(NORMAL, _prompt(asked), mode, asked.task)
        again = replace(normal, name="again", sampling=AGAIN)
        if asked.task != DOCUMENT:
            return normal, again
        other = replace(again, name="mode", mode=self._other(mode))
        return normal, again, other, replace(again, name="free", prompt=PROMPTS["free"], reads=PLAIN)

    def _other(self, mode: str) -> str:
        return (OTHER_MODE if "large" in self.modes else OTHER_MODE_2)[mode]

    def parse(self, text: str, page: int, rung: Rung = FIRST, layer: TextLayer = NO_LAYER) -> Answer:
        text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be written as JSON
        if rung.reads == DOCUMENT:
            return _document(text, page, layer)
        if rung.reads == PLAIN:
            return _read(text, page, layer)
        return _whole(text, page, rung)

    def looping(self, text: str) -> bool:
        return loops.growing(text)

    def question(
        self,
        element: Element,
        everything: bool,
        size: tuple[int, int],
        beside: Sequence[Element],
        replies: Sequence[Reply] = (),
    ) -> Question | None:
        name = element_prompts.next_prompt(element, everything, size, replies, self.knows_figures)
        return Question(PROMPTS[name], crop_mode(size, self.crop_modes)) if name else None

    def reread(self, element: Element, replies: Sequence[Reply]) -> Element:
        return element_prompts.reread(element, replies)


DEEPSEEK_OCR = DeepseekOcrFamily()
DEEPSEEK_OCR_2 = DeepseekOcrFamily(
    "deepseek_ocr2", "aaa02f3811945a91062062994c5c4a3f4c0af2b0", PAGE_MODES_2, CROP_MODES_2, knows_figures=False
)


def page_mode(look: Look, rows: Sequence[Row] = PAGE_MODES) -> str:
    return _fitting(rows, look.width, look.height, look.ink, look.characters)


def crop_mode(size: tuple[int, int], rows: Sequence[Row] = CROP_MODES) -> str:
    return _fitting(rows, *size, 0.0, 0)


def _fitting(rows: Sequence[Row], width: int, height: int, ink: float, characters: int) -> str:
    long, short = max(width, height, 1), max(min(width, height), 1)
    fits = (
        r for r in rows if long <= r.side and long / short <= r.aspect and ink <= r.ink and characters <= r.characters
    )
    return next(fits).mode  # the last row has no limits


def _prompt(asked: Asked) -> str:
    if asked.task == "custom" and asked.prompt:
        return asked.prompt
    return PROMPTS[asked.task].replace("{wanted}", asked.prompt or "")


def _document(text: str, page: int, layer: TextLayer) -> Answer:
    """An answer with boxes: what it says but for loops and a cut-off tag, and why that will not do."""
    answer = _read(text, page, layer)
    if answer.reason is None and answer.elements and not grounding.read(text).has_boxes:
        return replace(answer, reason=Code.UNGROUNDED)
    return answer


def _read(text: str, page: int, layer: TextLayer) -> Answer:
    told = grounding.read(text)
    blocks = told.blocks
    again = None
    if not any(block.label or block.corners for block in blocks):
        again = loops.repetition(text)
        blocks = tuple(elements.paragraphs(grounding.plain(text[:again])))
    blocks, looped = loops.without(blocks)
    if told.cut and blocks and not looped:
        blocks = (*blocks[:-1], replace(blocks[-1], flags=("cut_off",)))
    found = text_layer_check.heard(elements.elements(blocks, page), layer)
    reason = Code.LOOP if looped or again is not None else Code.TRUNCATED if told.cut else None
    return Answer(found, reason)


def _whole(text: str, page: int, rung: Rung) -> Answer:
    """Another task's answer: one element, with the boxes it tells of."""
    told = grounding.read(text, any_label=True)
    boxes = tuple(box for block in told.blocks for box in block.boxes)
    said = "\n".join(line for block in told.blocks for line in _lines(block, rung.reads))
    if not said and not boxes:
        return Answer()
    kind = Kind.PICTURE if rung.reads in ("figure", "describe") else Kind.TEXT
    element = Element(id=element_id(page, 0), page=page, category=kind.category, kind=kind, boxes=boxes)
    if kind is Kind.PICTURE:
        seen = element_prompts.reread(element, (Reply(text, rung.prompt),))
        element = element_prompts.saying(seen, said[: loops.repetition(said)]).model_copy(update={"read_by": 1})
    else:
        element = elements.told(element, said)
    looped = loops.looping(text)
    return Answer((element,), Code.LOOP if looped else Code.TRUNCATED if told.cut else None)


def _lines(block: Block, task: str) -> list[str]:
    """What a block says: `OCR this image.` and `Locate` have the text itself where others have a label."""
    label = (block.label or "") if task in ("image", "locate") or not block.content.strip() else ""
    return [line for line in (label, prose.cleaned(block.content)) if line]

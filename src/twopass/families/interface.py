"""What a family of models is asked, and how its answers become elements.

A family knows prompts and answers as text. It knows nothing of engines, files or neighbouring pages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from twopass.detection.region import DETECT
from twopass.document import Element, Flag, RungName
from twopass.errors import Code
from twopass.families.word_account import WordAccount
from twopass.models import Structure, resolve_structure
from twopass.pages.text_layer import NO_LAYER, TextLayer


@dataclass(frozen=True)
class FamilyOptions:
    """What the worker's settings say about a family; a family ignores what does not concern it.

    `small_crops`: crops of up to 640 pixels are read at that size. `max_tiles`: most tiles of an image. `layer_text`:
    where regions are detected, those of text take the words of a complete text layer and are not asked about.
    """

    small_crops: bool = False
    max_tiles: int | None = None
    structure: Structure = Structure.AUTO
    layer_text: bool = False

    @classmethod
    def recorded(cls, options: Mapping[str, Any]) -> FamilyOptions:
        """The options with which a document was read, from all those that its run records."""
        own = {one.name: options[one.name] for one in fields(cls) if one.name in options}
        return cls(**own | {"structure": Structure(own.get("structure", Structure.AUTO))})


@dataclass(frozen=True)
class PageFeatures:
    """What rendering measured on a page before any model reads it.

    `width` and `height` in pixels, `ink` is the share of inked blocks from 0 to 1, `characters` counts those of the
    text layer.
    """

    width: int
    height: int
    ink: float = 0.0
    characters: int = 0


@dataclass(frozen=True)
class PageRequest:
    """What the job asks of each page: its mode, task and prompt, as the contract names them."""

    mode: str = "auto"
    task: str = "document"
    prompt: str | None = None


@dataclass(frozen=True)
class Rung:
    """One attempt at a page; a ladder is the sequence of attempts, from the normal one to the last resort.

    `mode` is None where the family has no modes. `grammar` names the form of the answer and is passed back to the
    family's parser. `sampling` holds only the fields that differ from the job's sampling. `is_transcript`: the answer
    repeats text of the page.
    """

    name: RungName
    prompt: str
    mode: str | None = None
    grammar: str = "document"
    sampling: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    is_transcript: bool = True

    @property
    def detects(self) -> bool:
        """Whether a layout detector answers, and not the model."""
        return self.prompt == DETECT

    def renamed(self, name: RungName) -> Rung:
        return replace(self, name=name)

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # A mapping proxy cannot be pickled, and rungs are sent to page workers.
        return type(self), (self.name, self.prompt, self.mode, self.grammar, dict(self.sampling), self.is_transcript)


@dataclass(frozen=True)
class ParsedPage:
    """The elements that an answer of pass 1 describes.

    `reason` says why the answer cannot be used, None if it can. `flags` apply to the whole page. `via` is the source
    of the text where the engine names one: text_layer, hidden_layer or ocr.
    """

    elements: tuple[Element, ...] = ()
    reason: Code | None = None
    flags: tuple[Flag, ...] = ()
    via: str | None = None


@dataclass(frozen=True)
class Question:
    """One question of pass 2 about one crop. `name` says what is asked; each family has its own set of names.

    `sampling` holds only the fields that differ from the job's sampling. `is_transcript`: the answer repeats text of
    the crop.
    """

    name: str
    prompt: str
    mode: str | None = None
    sampling: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    is_transcript: bool = True

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        # A mapping proxy cannot be pickled, and questions are sent to page workers.
        values = (getattr(self, one.name) for one in fields(self))
        return type(self), tuple(dict(value) if isinstance(value, Mapping) else value for value in values)


@dataclass(frozen=True)
class CanaryQuestion(Question):
    """The question that asks for the text of a picture with nothing but text.

    `ngram` is the length in tokens of an n-gram ban with which no sound answer can repeat a line, and with which the
    grammar of the answer can still be written.
    """

    ngram: int = 2


class CropRange(NamedTuple):
    """The number of tiles that an image is cut into at most: for jobs that do not say, and the most they may ask."""

    default: int = 6
    most: int = 9


@dataclass(frozen=True)
class Reply:
    """The model's reply to a question; `question.name` decides how it is parsed, never the wording of the prompt.

    `layer_text` holds the words of the text layer inside the element, None where the page has no text layer.
    """

    question: Question
    text: str
    finish_reason: str = "stop"
    layer_text: str | None = None


@dataclass(frozen=True)
class ElementContext:
    """What a family knows when it decides what pass 2 asks about an element.

    `ask_all` asks about every element that can be asked about, `crop_size` is in pixels, `replies` are the replies
    about this element so far. `descriptions` names the figures to describe, as the contract does: all, charts or none.
    """

    element: Element
    ask_all: bool
    crop_size: tuple[int, int]
    page_elements: Sequence[Element]
    replies: Sequence[Reply] = ()
    descriptions: str = "all"


class Family(ABC):
    """The prompts of a line of models and the grammar of its answers. A plain value that is sent to page workers.

    What a family does not override fits a model without modes, options, figures and a second reading.
    """

    @property
    @abstractmethod
    def name(self) -> str: ...

    @property
    @abstractmethod
    def revision(self) -> str:
        """The model revision that the prompts and the grammar were written for."""

    @property
    @abstractmethod
    def prompts(self) -> Mapping[str, str]:
        """Every prompt by name, for the document's `run` block."""

    @property
    @abstractmethod
    def canary(self) -> CanaryQuestion | None:
        """The question of the canary; None where no model is asked."""

    @abstractmethod
    def ladder(self, features: PageFeatures, request: PageRequest) -> tuple[Rung, ...]:
        """The attempts to make at a page, the normal one first; never empty."""

    @abstractmethod
    def parse(self, text: str, page: int, rung: Rung, layer: TextLayer = NO_LAYER) -> ParsedPage:
        """Parse an answer about one page. Never fails: any text gives some result.

        `layer` is only compared with the answer; no text is taken from it.
        """

    @property
    def options(self) -> Mapping[str, Any]:
        """The fields of FamilyOptions, by name, that change what is read and differ from the default.

        They are part of a document's identity, and recorded answers are parsed with them.
        """
        return MappingProxyType({})

    def configure(self, options: FamilyOptions) -> Self:
        """The family with these options; raises InvalidSetting for one that it cannot follow."""
        resolve_structure(options.structure, self.name)
        return self

    @property
    def sampling(self) -> Mapping[str, Any]:
        """The fields of its sampling that differ from the engines' default; jobs may override them."""
        return MappingProxyType({})

    @property
    def crops(self) -> CropRange:
        """How many tiles images are cut into."""
        return CropRange()

    @property
    def modes(self) -> frozenset[str]:
        """The modes a job may ask for."""
        return frozenset({"auto"})

    @property
    def tasks(self) -> frozenset[str]:
        """The tasks a job may ask for."""
        return frozenset({"document"})

    def strip_grammar(self, text: str) -> str:
        """The words of an answer to the canary's question, without tags and coordinates."""
        return text

    @property
    def region_grammars(self) -> frozenset[str]:
        """The grammars of answers about one region; empty where answers are about pages."""
        return frozenset()

    def account(self, text: str, elements: Sequence[Element]) -> WordAccount:
        """What became of the words of an answer in the elements that were made of it; nothing without its grammar."""
        return WordAccount()

    def is_looping(self, text: str) -> bool:
        """Whether an answer that is still being generated repeats itself."""
        return False

    def next_question(self, context: ElementContext) -> Question | None:
        """What pass 2 asks next about an element, None when there is nothing (more) to ask."""
        return None

    def apply_replies(self, element: Element, replies: Sequence[Reply]) -> Element:
        """The element after pass 2: which reading is used, why, and with what confidence."""
        return element

    def finish_page(self, elements: Sequence[Element]) -> tuple[Element, ...]:
        """A page's elements after pass 2, with what needs several of them, such as a formula and its number."""
        return tuple(elements)

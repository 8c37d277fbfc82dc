"""What differs between models that read one region at a time, and the models that are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from twopass.detection.labels import RULES, Label
from twopass.document import Kind
from twopass.families import formula_numbers


class Task(StrEnum):
    """What is asked about a region, and how the answer is read."""

    TEXT = "text"
    TABLE = "table"
    FORMULA = "formula"
    CHART = "chart"
    SEAL = "seal"


# What a task reads, where no detector says so.
KINDS: Mapping[Task, Kind] = MappingProxyType(
    {
        Task.TEXT: Kind.TEXT,
        Task.TABLE: Kind.TABLE,
        Task.FORMULA: Kind.FORMULA,
        Task.CHART: Kind.CHART,
        Task.SEAL: Kind.PICTURE,
    }
)


class TableGrammar(StrEnum):
    HTML = "html"
    OTSL = "otsl"


@dataclass(frozen=True)
class RegionReader:
    """One model. `tasks` has the labels that are read; regions of other labels keep their box without text.

    `long_text` and `long_table` are the characters from which a repetition is looked for. `tag` is the command that
    gives a formula its number. `repetition_penalty` is that of `Sampling`.
    """

    prompts: Mapping[Task, str]
    tasks: Mapping[Label, Task]
    tables: TableGrammar
    max_tokens: int
    long_text: int
    long_table: int
    tag: str = formula_numbers.TAG
    repetition_penalty: float = 1.0


_TASKS_OF_KINDS = {Kind.TABLE: Task.TABLE, Kind.FORMULA: Task.FORMULA, Kind.CHART: Task.CHART, Kind.PICTURE: None}


def _assign_tasks(changes: Mapping[Label, Task | None]) -> Mapping[Label, Task]:
    """The task of each label by its kind, with changes; None leaves a label unread."""
    tasks = {label: changes.get(label, _TASKS_OF_KINDS.get(RULES[label].kind, Task.TEXT)) for label in Label}
    return MappingProxyType({label: task for label, task in tasks.items() if task})


# Prompts, limits and sampling are those of GLM's SDK at cef4d0e, whose top_k of 1 is greedy. It does not read headers,
# footers, footnotes and references; their text is content, so that it is read here.
GLM_OCR = RegionReader(
    prompts=MappingProxyType(
        {Task.TEXT: "Text Recognition:", Task.TABLE: "Table Recognition:", Task.FORMULA: "Formula Recognition:"}
    ),
    tasks=_assign_tasks({Label.CHART: None, Label.SEAL: Task.TEXT}),
    tables=TableGrammar.HTML,
    max_tokens=8192,
    long_text=2048,
    long_table=5000,
    repetition_penalty=1.1,
)
PADDLEOCR_VL = RegionReader(
    prompts=MappingProxyType(
        {
            Task.TEXT: "OCR:",
            Task.TABLE: "Table Recognition:",
            Task.FORMULA: "Formula Recognition:",
            Task.CHART: "Chart Recognition:",
            Task.SEAL: "Seal Recognition:",
        }
    ),
    tasks=_assign_tasks({Label.SEAL: Task.SEAL}),
    tables=TableGrammar.OTSL,
    max_tokens=4096,
    long_text=50,
    long_table=5000,
    tag=formula_numbers.TAG_AS_WRITTEN,
)
READERS: Mapping[str, RegionReader] = MappingProxyType({"glm_ocr": GLM_OCR, "paddleocr_vl": PADDLEOCR_VL})  # by family

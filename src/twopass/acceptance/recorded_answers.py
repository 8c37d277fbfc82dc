"""Stage (d): ask the prompts of recorded answers again, and compare the answers with the recorded ones.

Each record is asked with its own image, prompt, mode and sampling. Judged are how the answer ends, the number of tokens
of the prompt, words, length, boxes and tables. Where the recorded answer is a loop, only what comes before the loop is
compared: how long a loop runs, and whether the model enters it, can depend on one token.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from twopass.acceptance import scores
from twopass.acceptance.checks import Check, judge, skip
from twopass.acceptance.records import Record, read_pixels
from twopass.acceptance.reference import MODE
from twopass.document import Box, Table
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.errors import Code, EngineError
from twopass.families import agreement, table_parser
from twopass.families.deepseek import PROMPTS
from twopass.families.grounded import grounding, loops
from twopass.families.grounded.grounding import Block
from twopass.families.registry import FAMILIES
from twopass.models import DEFAULT_MODEL, VisionSpec
from twopass.runtime import task_group
from twopass.steps.canary import BYTE_MARKS
from twopass.text import table_markup

STAGE = "d"
# Derived from perturbed recorded answers, not from answers of a second engine with the real weights. The
# perturbations are in tests/acceptance/perturbations.py, their scores in docs/log/acceptance.md.
# - Noise, which has to pass: a third of the word errors between the two recorded answers to one page (0.07 for clean
#   print, 0.21 for Fraktur, 0.54 for a form of 25 words), and box sides that are up to 3 of 999 off.
# - Faults, which have to fail: of the words, wrong normalisation changes 0.21 or more, two swapped tiles 0.34.
MAX_WORD_ERRORS = 0.12  # of the recorded words
_MAX_FEW_ERRORS = 6  # words, in short answers, where a few words are a large share
_MAX_LENGTH_CHANGE = 0.1  # of the recorded characters
# A page may have few and small boxes, so the required IoU depends on them: as if every side was this far off, and one
# block of ten was split or joined.
_MAX_SIDE_ERROR = 4 / 999  # of the page's width or height
_MIN_MATCHED = 0.9  # of the blocks
_MIN_TABLE_SIMILARITY = 0.9  # a missing row of eight gives 0.88

_SAME_LETTERS = 0.95  # share of equal letters from which on only the spaces are wrong
_SAME_WORDS = 0.9  # Dice coefficient of the words from which on only their order is wrong

_MAX_IN_FLIGHT = 16  # records whose images are in memory
MAX_TOKENS = 8192  # the model's context, and the limit of the official code
_RECORDED_PROMPTS = ("document", "free")  # asked about a user's own images

_NO_ANSWER = frozenset({"error", "crash", "abort"})  # finish reasons

Ask = Callable[[Prompt], Awaitable[Completion]]


@dataclass(frozen=True)
class Reading:
    """An answer without its loops: blocks, their text in the order of the answer, and tables."""

    blocks: tuple[Block, ...]
    is_looping: bool

    @classmethod
    def of(cls, answer: str) -> Reading:
        return cls(*loops.remove_loops(grounding.parse(answer).blocks))

    def cut(self, count: int) -> Reading:
        """The first blocks."""
        return replace(self, blocks=self.blocks[:count])

    @property
    def text(self) -> str:
        parts = (part for block in self.blocks for part in table_parser.split_tables(block.content))
        return "\n".join(table_markup.to_text(part.table) if part.table else part.text for part in parts)

    @property
    def tables(self) -> list[Table]:
        parts = (part for block in self.blocks for part in table_parser.split_tables(block.content))
        return [part.table for part in parts if part.table]

    @property
    def has_boxes(self) -> bool:
        return any(block.boxes for block in self.blocks)


async def compare(records: Sequence[Record], ask: Ask) -> list[Check]:
    """Ask all records and judge the answers. `ask` is an engine's `generate`; its errors are raised."""
    pairs = zip(records, await _ask_all(records, ask), strict=True)
    checks = [check for record, completion in pairs for check in judge_answer(record, completion)]
    if not any(Reading.of(record.text).tables for record in records):
        checks.append(skip(STAGE, "tables", "no recorded answer has a table; record pages with tables with --record"))
    return checks


async def _ask_all(records: Sequence[Record], ask: Ask) -> list[Completion]:
    slots = asyncio.Semaphore(_MAX_IN_FLIGHT)

    async def answer(record: Record) -> Completion:
        async with slots:
            return await ask(await asyncio.to_thread(build_prompt, record))

    async with task_group.open_group() as group:
        answers = [group.create_task(answer(record)) for record in records]
    return [answer.result() for answer in answers]


def build_prompt(record: Record) -> Prompt:
    """Build the prompt that was recorded; a loop ends the answer, because nothing of it is compared."""
    return Prompt(
        record.prompt_id,
        record.prompt,
        record.read_image(),
        mode=record.mode,
        sampling=record.sampling,
        loop_check=FAMILIES[DEFAULT_MODEL].is_looping,
    )


def judge_answer(record: Record, completion: Completion) -> list[Check]:
    """Compare one answer with its record: end, tokens of the prompt, words, length, boxes and tables."""
    expected = Reading.of(record.text)
    checks = [_judge_end(record, completion, expected.is_looping)]
    if completion.finish_reason in _NO_ANSWER:
        return checks
    checks.append(_judge_prompt_tokens(record, completion))
    answer = Reading.of(completion.text)
    if expected.is_looping:
        answer = answer.cut(len(expected.blocks))
    else:
        checks.append(_judge_length(record, len(answer.text), len(expected.text)))
    checks.append(_judge_words(record, answer.text, expected.text))
    if expected.has_boxes:
        checks.append(_judge_boxes(record, answer.blocks, expected.blocks))
    if expected.tables:
        checks.append(_judge_tables(record, answer.tables, expected.tables))
    return checks


def _judge_end(record: Record, completion: Completion, is_looping: bool) -> Check:
    accepted = ("stop", "length", "loop") if is_looping else (record.finish_reason or "stop",)
    required = " or ".join(accepted) + (", as the recorded answer is a loop" if is_looping else "")
    meaning = {
        "length": "the answer was cut off at the token limit: the model does not end it; check its end token",
        "loop": "the answer repeats itself: check the n-gram ban and the model's files",
    }.get(completion.finish_reason, "the engine did not answer: see the log of this run")
    is_good = completion.finish_reason in accepted
    return judge(STAGE, f"{record.name}: end", is_good, completion.finish_reason, required, meaning)


def _judge_prompt_tokens(record: Record, completion: Completion) -> Check:
    name, count = f"{record.name}: prompt tokens", completion.tokens_in
    if not count:
        return skip(STAGE, name, "the engine does not report them")
    meaning = "tiles, newline tokens, the first token or the prompt's words differ: see stages a and b"
    return judge(STAGE, name, count == record.prompt_tokens, count, record.prompt_tokens, meaning)


def _judge_length(record: Record, length: int, expected: int) -> Check:
    least, most = round((1 - _MAX_LENGTH_CHANGE) * expected), round((1 + _MAX_LENGTH_CHANGE) * expected)
    if length < least:
        meaning = "the answer ends early or has no spaces: text is missing"
    else:
        meaning = "the answer goes on after the end of the page's text: check its end token"
    name = f"{record.name}: characters"
    return judge(STAGE, name, least <= length <= most, length, f"{least} to {most}", meaning)


def _judge_words(record: Record, text: str, expected: str) -> Check:
    rate = scores.word_error_rate(text, expected)
    limit = max(MAX_WORD_ERRORS, _MAX_FEW_ERRORS / max(agreement.count_word_edits("", expected), 1))
    name, required = f"{record.name}: word error rate", f"at most {limit:.2f}"
    return judge(STAGE, name, rate <= limit, f"{rate:.3f}", required, _explain_words(text, expected))


def _explain_words(text: str, expected: str) -> str:
    """Say what the kind of the difference suggests."""
    if any(mark in text for mark in BYTE_MARKS):
        return "marks of a byte-level vocabulary are in the text: tokens are not decoded; check the tokenizer"
    if agreement.similarity(text, expected) >= _SAME_LETTERS:
        return "the letters agree, but not the spaces: check how tokens are decoded"
    if agreement.word_overlap(text, expected) >= _SAME_WORDS:
        return "the words agree, but not their order: check the order of tiles and the newline tokens (stage b)"
    return "words are misread: check weights, normalisation, tiles and newline tokens (stages a to c)"


def _judge_boxes(record: Record, blocks: Sequence[Block], expected: Sequence[Block]) -> Check:
    iou, limit = scores.mean_box_iou(blocks, expected), _required_iou(expected)
    meaning = "blocks are missing or at other places: check the order of tiles, newline tokens and padding (stage b)"
    return judge(STAGE, f"{record.name}: box IoU", iou >= limit, f"{iou:.3f}", f"at least {limit:.2f}", meaning)


def _required_iou(blocks: Sequence[Block]) -> float:
    """The mean IoU of these boxes with boxes that are larger by _MAX_SIDE_ERROR at every side, less _MIN_MATCHED."""
    boxes = [box for block in blocks for box in block.boxes]
    larger = (
        Box(b.x0 - _MAX_SIDE_ERROR, b.y0 - _MAX_SIDE_ERROR, b.x1 + _MAX_SIDE_ERROR, b.y1 + _MAX_SIDE_ERROR)
        for b in boxes
    )
    return _MIN_MATCHED * sum(map(scores.box_iou, boxes, larger)) / len(boxes)


def _judge_tables(record: Record, tables: Sequence[Table], expected: Sequence[Table]) -> Check:
    similarity = scores.mean_table_similarity(tables, expected)
    name, required = f"{record.name}: table TEDS", f"at least {_MIN_TABLE_SIMILARITY}"
    meaning = "cells, rows or columns of tables are missing or wrong: check the tokens that may repeat (stage a)"
    return judge(STAGE, name, similarity >= _MIN_TABLE_SIMILARITY, f"{similarity:.3f}", required, meaning)


async def record_answers(
    images: Iterable[Path], ask: Ask, spec: VisionSpec, model: str, revision: str, made_with: str
) -> tuple[Record, ...]:
    """Ask both prompts for pages about each image, and return the answers as records that `records.write` keeps.

    `spec` is how the model cuts images; `made_with` says in words which software, precision and GPU answered. Raises
    SourceError for an unreadable image and EngineError for a prompt without an answer.
    """
    pending = [
        _prepare_record(path, prompt, spec, model, revision, made_with)
        for path in images
        for prompt in _RECORDED_PROMPTS
    ]
    completions = await _ask_all(pending, ask)
    return tuple(_complete(record, completion) for record, completion in zip(pending, completions, strict=True))


def _prepare_record(path: Path, prompt: str, spec: VisionSpec, model: str, revision: str, made_with: str) -> Record:
    """A record whose answer is not known yet."""
    pixels, sampling = read_pixels(path), Sampling()
    grid = spec.choose_grid(pixels.width, pixels.height, MODE, Prompt.max_crops)
    name = re.sub(r"[^\w.-]", "_", f"{path.name}.{prompt}")
    return Record(
        name=name, image=path.name, answer=f"{name}.txt", prompt=PROMPTS[prompt], mode=MODE,
        width=pixels.width, height=pixels.height, columns=grid.columns, rows=grid.rows,
        image_tokens=spec.count_tokens(MODE, grid), prompt_tokens=0, output_tokens=0,
        temperature=sampling.temperature, max_tokens=MAX_TOKENS, ngram=sampling.ngram, window=sampling.window,
        allowed_tokens=sampling.allowed_tokens, model=model, revision=revision, made_with=made_with,
        folder=path.parent, text="",
    )  # fmt: skip


def _complete(record: Record, completion: Completion) -> Record:
    if completion.finish_reason in _NO_ANSWER:
        message = (
            f"{record.name}: the engine gave no answer ({completion.finish_reason}); see the log, and record again"
        )
        raise EngineError(Code.ENGINE_REFUSED, message)
    return record.model_copy(
        update={
            "text": completion.text,
            "finish_reason": completion.finish_reason,
            "prompt_tokens": completion.tokens_in,
            "output_tokens": completion.tokens_out,
        }
    )

"""Everything that a review page can name is explained: flags, page states, attempts, reasons and confidence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests import ROOT
from twopass.document import Attempt, ConfidenceMethod, State
from twopass.errors import Code
from twopass.families import registry
from twopass.families.interface import FamilyOptions, PageFeatures, PageRequest, Structure
from twopass.families.registry import FAMILIES
from twopass.formats import explanations
from twopass.steps import pass1

# Functions with such a name take or give flags.
NAMES_OF_FLAGS = re.compile("flag|doubt|defect|find_failure")
FLAG = re.compile(r"[a-z][a-z\d]*(_[a-z\d*]+)*")


@cache
def parse_sources() -> tuple[ast.Module, ...]:
    return tuple(ast.parse(path.read_text()) for path in sorted((ROOT / "src" / "twopass").rglob("*.py")))


@cache
def find_constants() -> dict[str, str]:
    """All module constants with a text, by name."""
    return {
        target.id: node.value.value
        for tree in parse_sources()
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def find_flag_values(tree: ast.AST) -> Iterator[ast.AST]:
    """The expressions that give elements and pages their flags."""
    for node in ast.walk(tree):
        match node:
            case ast.keyword(arg="flags", value=value):
                yield value
            case ast.Dict(keys=keys, values=values):
                yield from (v for k, v in zip(keys, values, strict=True) if is_text(k, "flags"))
            case ast.Assign(targets=[target], value=value) if is_flag_target(target):
                yield value
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if NAMES_OF_FLAGS.search(name):
                yield from args
            case ast.Call(func=ast.Name(id="Verdict"), args=[_, _, *flags]):
                yield from flags
            case ast.FunctionDef(name=name) if NAMES_OF_FLAGS.search(name):
                yield from (n for n in ast.walk(node) if isinstance(n, ast.Yield | ast.YieldFrom))
                yield from (n.value for n in ast.walk(node) if isinstance(n, ast.Return) and n.value)


def is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def is_flag_target(target: ast.AST) -> bool:
    match target:
        case ast.Name(id=name):
            return name in ("flags", "defects")
        case ast.Subscript(slice=key):
            return is_text(key, "flags")
    return False


def find_flags(source: ast.AST) -> set[str]:
    """The flags that a module can set; `*` stands for the part of a name that is filled in."""
    found: set[str] = set()
    for value in find_flag_values(source):
        for node in ast.walk(value):
            match node:
                case ast.JoinedStr(values=parts):
                    found.add("".join(str(p.value) if isinstance(p, ast.Constant) else "*" for p in parts))
                case ast.Constant(value=str(text)):
                    found.add(text)
                case ast.Name(id=name) | ast.Attribute(attr=name) if name in find_constants():
                    found.add(find_constants()[name])
    return {text for text in found if FLAG.fullmatch(text)} - {"flags", "stop"}


@pytest.mark.parametrize(
    "source",
    [
        "Element(flags=(*layout.flags, 'new'))",
        "element.model_copy(update={'flags': (*element.flags, 'new')})",
        "update['flags'] = ('new',)",
        "flags = {'new': is_new}",
        "add_flags(element, 'new')",
        "def _find_doubts(element):\n    yield 'new'",
        "def find_failure(reply):\n    return 'new' if reply else None",
    ],
)
def test_the_search_for_flags_finds_every_way_to_set_one(source: str) -> None:
    """A flag is found however the code sets it, so that the next test cannot miss it."""
    assert find_flags(ast.parse(source)) == {"new"}


def test_every_flag_of_the_code_is_explained() -> None:
    """Each flag that the code can set has a sentence, and each sentence belongs to such a flag."""
    found = set().union(*map(find_flags, parse_sources()))

    patterns = {re.escape(flag).replace(r"\*", r"\w+") for flag in found}
    unexplained = {pattern for pattern in patterns if not any(re.fullmatch(pattern, f) for f in explanations.FLAGS)}
    unused = {flag for flag in explanations.FLAGS if not any(re.fullmatch(pattern, flag) for pattern in patterns)}
    assert not unexplained
    assert not unused


def test_flags_are_explained_in_sentences() -> None:
    """Words of flags and states are whole sentences without the names that the code uses."""
    sentences = [*explanations.FLAGS.values(), *(words.sentence for words in explanations.STATES.values())]

    assert all(re.fullmatch(r"[A-Z][^_]+\.", sentence) for sentence in sentences)
    assert set(explanations.FLAGS) >= explanations.INFORMATIONAL_FLAGS | explanations.PAGE_FLAGS


def test_every_state_is_explained() -> None:
    """Each state that a page can end in has words."""
    assert set(explanations.STATES) == set(State)


def test_every_attempt_is_explained() -> None:
    """Each attempt of every family has words, and so has the use of the PDF's own text."""
    features = PageFeatures(1190, 1684)
    structures = [Structure.MODEL, Structure.DETECTOR, Structure.FALLBACK]
    detected = [registry.get_family("deepseek_ocr", FamilyOptions(structure=structure)) for structure in structures]
    rungs = {
        rung.name
        for family in (*FAMILIES.values(), *detected)
        for task in family.tasks
        for rung in family.ladder(features, PageRequest(task=task, prompt="x"))
    }

    assert rungs | {pass1.TEXT_LAYER_RUNG} == set(explanations.RUNGS)


def test_every_reason_of_an_unusable_answer_is_explained() -> None:
    """Each code that says why a page's answer could not be used has words."""
    assert set(explanations.REASONS) >= {*pass1.INCOMPLETE.values(), *pass1._EXPLANATIONS}


def test_every_method_of_confidence_is_explained() -> None:
    """Each method by which the code finds a confidence has a sentence."""
    assert set(explanations.METHODS) == set(ConfidenceMethod)


def test_names_without_words_are_shown_as_they_are() -> None:
    """What a later version adds is shown by its name instead of being hidden."""
    assert explanations.explain_flag("newer") == "newer"
    assert explanations.explain_reason(Code.CANARY) == "CANARY"
    assert explanations.explain_attempt(Attempt(rung="newer", reason=Code.LOOP)) == "newer: the answer repeated itself"

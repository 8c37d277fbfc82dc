"""Everything that a review page can name is explained: flags, page states, attempts, reasons and confidence."""

from __future__ import annotations

import re

from twopass.document import Attempt, ConfidenceMethod, Flag, State
from twopass.errors import Code
from twopass.families import registry
from twopass.families.interface import FamilyOptions, PageFeatures, PageRequest, Structure
from twopass.families.registry import FAMILIES
from twopass.formats import explanations
from twopass.steps import fallback, pass1


def test_flags_are_explained_in_sentences() -> None:
    """Words of flags and states are whole sentences without the names that the code uses."""
    sentences = [*(flag.sentence for flag in Flag), *(words.sentence for words in explanations.STATES.values())]

    assert all(re.fullmatch(r"[A-Z][^_]+\.", sentence) for sentence in sentences)


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

    assert rungs | {fallback.TEXT_LAYER_RUNG} == set(explanations.RUNGS)


def test_every_reason_of_an_unusable_answer_is_explained() -> None:
    """Each code that says why a page's answer could not be used has words."""
    assert set(explanations.REASONS) >= {*pass1.INCOMPLETE.values(), *fallback._EXPLANATIONS}


def test_every_method_of_confidence_is_explained() -> None:
    """Each method by which the code finds a confidence has a sentence."""
    assert set(explanations.METHODS) == set(ConfidenceMethod)


def test_names_without_words_are_shown_as_they_are() -> None:
    """What a later version adds is shown by its name instead of being hidden."""
    assert Flag("newer").sentence == "newer"
    assert explanations.explain_reason(Code.CANARY) == "CANARY"
    assert explanations.explain_attempt(Attempt(rung="newer", reason=Code.LOOP)) == "newer: the answer repeated itself"

"""Hyphens at line ends: kept or dropped by the document's words and by what both halves are."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twopass.text import hyphenation, prose
from twopass.text.hyphenation import NO_WORDS, Vocabulary


def join(text: str, *others: str, language: str | None = "en") -> str:
    """The text on one line, in a document with these other texts."""
    return hyphenation.join_words(prose.unwrap(text), Vocabulary.collect((text, *others)), language)


@pytest.mark.parametrize(
    "broken",
    [
        "har-\nbours",
        "volun-\ntary",
        "evapora-\ntion",
        "INTER-\nNATIONAL",
        "har\u2010\nbours",
        "quays/har-\nbours",
        "har\u00ad\nbours",
        "har¬\nbours",
    ],
)
def test_a_word_that_the_line_end_breaks_is_whole_again(broken: str) -> None:
    """Whether its halves are words or not: the language has the whole word."""
    assert join(broken) == re.sub(r"[^\w/]", "", broken)


@pytest.mark.parametrize(
    "broken",
    [
        "carbon-\nfree", "cross-\nborder", "Ten-\nyear", "depth-of-\nwater", "day-to-\nday", "Anglo-\nSaxon", "X-\nray",
        "COVID-\n19", "DNA-\nbased", "2019-\n2021", "KX-\n7b", "non-\u2011\nx", "example.org/tide-\ntable",
        "night-watch@quay-\nhouse", "carbon\u2010\nfree",
        "built-\nin", "follow-\nup", "twenty-\nfirst", "anti-\ninflammatory", "intra-\ninterviewer", "quasi-\nmarket",
        "long-\nterm", "Short-\nterm", "well-\nknown", "large-\nscale", "real-\ntime", "full-\ntime", "non-\nprofit",
    ],
)  # fmt: skip
def test_a_hyphen_that_may_belong_to_the_word_stays(broken: str) -> None:
    """Compounds of two words, names, numbers, part numbers and addresses."""
    assert join(broken) == broken.replace("\n", "")


@pytest.mark.parametrize(
    ("broken", "language"),
    [("franco-\nallemande", "fr"), ("italo-\nfrancese", "it"), ("hispano-\nluso", "es"), ("mi-\ntemps", "fr")],
)
def test_a_word_that_is_not_listed_without_its_hyphen_keeps_it(broken: str, language: str) -> None:
    """Also where one half is no word, and in languages that write compounds as one word."""
    assert join(broken, language=language) == broken.replace("\n", "")


@pytest.mark.parametrize(
    ("broken", "elsewhere", "expected"),
    [
        ("co-\noperation", "the co-operation of", "co-operation"),
        ("co-\noperation", "the cooperation of", "cooperation"),
        ("key-\nword", "Keyword lists", "keyword"),
        ("data-\nbase", "no data-base; the data-base", "data-base"),
        ("methyl-decatrie-\nnoic", "methyl-decatrienoic acid", "methyl-decatrienoic"),
        ("grob-\nwurz", "die Grobwurz", "grobwurz"),
        ("Mac-\nDonald", "by MacDonald", "MacDonald"),
        ("wifi-\nenabled", "the wifi is enabled", "wifi-enabled"),
    ],
)
def test_the_documents_own_words_decide_first(broken: str, elsewhere: str, expected: str) -> None:
    """The form that the document has elsewhere, or most often, in any case."""
    assert join(broken, elsewhere) == expected


@pytest.mark.parametrize(
    ("language", "broken", "expected"),
    [
        ("de", "Hafen-\nbehörde", "Hafenbehörde"),
        ("de", "Ver-\nordnung", "Verordnung"),
        ("de", "deutsch-\nfranzösische", "deutsch-französische"),
        ("de", "Bildungs-\nund Kulturamt", "Bildungs- und Kulturamt"),
        ("fr", "peut-\nêtre", "peut-être"),
        ("fr", "compré-\nhension", "compréhension"),
        ("fr", "réelle-\nment", "réellement"),
        ("nl", "haven-\nmeester", "havenmeester"),
        ("en", "in-\nand output", "in- and output"),
        ("xx", "sam-\nhälle", "samhälle"),
        (None, "har-\nbours", "harbours"),
    ],
)
def test_languages_differ(language: str | None, broken: str, expected: str) -> None:
    """German and Dutch write compounds as one word; without a word list, halves that nobody knows are joined."""
    assert join(broken, language=language) == expected


def test_lines_that_were_joined_with_blanks_get_their_ends_back() -> None:
    """Only where a hyphen may break a word."""
    assert hyphenation.restore_line_ends("old har- bours of - 7- 9 May") == "old har-\nbours of - 7- 9 May"


@given(st.text(alphabet="ab-\u2010\u00ad\n A1.*</sup>", max_size=40), st.sampled_from([None, "en", "de"]))
def test_only_hyphens_and_blanks_change(text: str, language: str | None) -> None:
    """Any text keeps all its other characters in their order, and nothing is left to decide."""
    joined = join(text, language=language)

    kept = re.compile("[^-\u2010\u00ad\\s]")
    assert kept.findall(joined) == kept.findall(text)
    assert not hyphenation.has_break(joined)
    assert hyphenation.join_words(joined, NO_WORDS, language) == joined

"""From evidence to confidence."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.bench import calibration as calibrate
from scripts.bench.calibration import Reading
from scripts.bench.scans import LANGUAGES
from tests.fakes import texts
from twopass.document import ConfidenceMethod
from twopass.text.confidence import (
    ANY_SCRIPT,
    SUSPICIOUS,
    UNCERTAIN_BELOW,
    Evidence,
    find_calibration,
    judge,
    judge_unknown_layer,
    measure_plausibility,
    weigh_plausibility,
)

SHARES = st.floats(0, 1)
EVIDENCE = st.builds(
    Evidence, st.integers(0, 30_000), st.none() | SHARES, st.none() | SHARES, st.booleans(), st.booleans()
)


@given(EVIDENCE)
def test_no_evidence_gives_certainty(evidence: Evidence) -> None:
    """The score is above 0 and below 1, and the flag `uncertain` follows from the documented threshold alone."""
    confidence, flags = judge(evidence)

    assert 0 < confidence.score < 1
    assert ("uncertain" in flags) == (confidence.score < UNCERTAIN_BELOW)


def test_text_that_makes_no_sense_is_uncertain_however_sure_the_recogniser_is() -> None:
    """Words across columns or in a script that looks like Latin have a high score and no sense."""
    noise = weigh_plausibility("xaqej ojquv wiqaz uzqix qoxev jiqux vaqiz oxqej zuqav iqjoz " * 2)
    confidence, flags = judge(Evidence(200, recogniser=0.99, plausibility=noise))

    assert confidence.score <= 0.5 and "uncertain" in flags
    assert (
        weigh_plausibility("The level in the borehole is measured before the pump starts, after it has run " * 2) == 1
    )


@pytest.mark.parametrize("sure", [{"recogniser": 1.0}, {"agreement": 1.0}, {"is_compared": True}])
def test_odd_text_and_text_across_columns_are_never_almost_certain(sure: dict[str, Any]) -> None:
    """However sure the letters are, words may be wrong if many cannot be words, and their order across columns."""
    odd = judge(Evidence(200, **sure, plausibility=0.7))[0]
    confidence, flags = judge(Evidence(200, **sure, is_across=True))

    assert judge(Evidence(200, **sure))[0].score >= 0.98 > 0.9 >= odd.score
    assert confidence.score <= 0.5 and confidence.method is ConfidenceMethod.MIXED_ORDER and "uncertain" in flags


@pytest.mark.parametrize(
    ("text", "small", "large", "unknown"),
    [
        ("Η στάθμη του νερού (DN 300) μετράται", 0.8, 0.9, 0.88),
        ("린다흐 정수장은 두 곳의 샘", 0.85, 0.85, 0.85),
        ("تقوم محطة المياه بتزويد السكان (DN 300)", 0.66, 0.96, 0.94),
        ("สถานีประปาส่งน้ำให้ประชาชน", 0.99, 0.99, 0.99),
        ("The level α is measured", 0.99, 0.99, 0.99),
        ("Total 12 ١٢٣٤٥٦", 0.99, 0.99, 0.99),
    ],
)
def test_ocr_is_as_sure_as_words_of_the_script_are_right_in_that_height(
    text: str, small: float, large: float, unknown: float
) -> None:
    """A third of the words of tiny Arabic lines is wrong, however sure it is; scores of Latin lines are right."""
    calibration = find_calibration(text)
    heights = (11.0, 40.0, 0.0)
    scores = [judge(Evidence(200, recogniser=1.0, calibration=calibration, line_height=h))[0].score for h in heights]

    assert scores == [small, large, unknown]
    assert judge(Evidence(200, agreement=1.0, calibration=calibration, line_height=11.0))[0].score >= 0.98  # no OCR


READINGS = [Reading(**row) for row in json.loads((Path(__file__).parent / "ocr_readings.json").read_text())]


@pytest.mark.parametrize("language", ["ar", "el", "th"])
def test_calibrations_are_fitted_to_scans_and_better_on_other_ones(language: str) -> None:
    """The numbers are those that the script fits; in other fonts and sentences, confidence is nearer with them."""
    fitted, checked = (
        [own for own in READINGS if own.language == language and own.checks == checks] for checks in (False, True)
    )
    sentence = next(one for one in LANGUAGES if one.code == language).sentences[0]
    calibration = calibrate.fit(fitted)

    assert replace(find_calibration(sentence), letters="") == calibration
    assert calibrate.measure_error(checked) < calibrate.measure_error(checked, ANY_SCRIPT)


@pytest.mark.parametrize(("language", "checks"), [("ar", False), ("el", False), ("el", True)])
def test_confidence_is_nearer_to_the_right_words_if_it_knows_the_height_of_lines(language: str, checks: bool) -> None:
    """A recogniser is as sure of small letters as of large ones, and reads them worse.

    Of the Arabic scans in other fonts one is small: height gains nothing on them.
    """
    own = [one for one in READINGS if one.language == language and one.checks == checks]

    assert calibrate.measure_error(own) < calibrate.measure_error(own, knows_height=False)


def test_thai_that_is_read_unlike_in_two_sizes_is_uncertain_and_not_worthless() -> None:
    """Nine of ten letters are right where Latin lines of that score have one word of three."""
    thai, latin = (
        judge(Evidence(200, recogniser=0.75, calibration=find_calibration(text)))
        for text in ("สถานีประปาส่งน้ำ", "the level is measured")
    )

    assert thai[0].score >= 0.8 > 0.4 > latin[0].score
    assert find_calibration("Siam ที่นี่").least == 0.0  # four of six letters are Latin, the rest are signs
    assert "uncertain" in thai[1]


@given(SHARES, st.floats(0, 100), st.floats(0, 100), st.sampled_from("aαบع한"))
def test_larger_letters_never_lower_the_score(score: float, one: float, other: float, text: str) -> None:
    """OCR of higher lines in any script is at least as sure."""
    calibration = find_calibration(text)
    low, high = (
        judge(Evidence(200, recogniser=score, calibration=calibration, line_height=height))[0].score
        for height in sorted((one, other))
    )

    assert low <= high


@given(SHARES, SHARES)
def test_better_evidence_never_lowers_the_score(one: float, other: float) -> None:
    """A higher agreement with the pixels, or a higher score of the recogniser, gives a score that is not lower."""
    low, high = sorted((one, other))

    assert judge(Evidence(9, agreement=low))[0].score <= judge(Evidence(9, agreement=high))[0].score
    assert judge(Evidence(9, recogniser=low))[0].score <= judge(Evidence(9, recogniser=high))[0].score


def test_text_that_hardly_agrees_with_the_pixels_is_unreadable() -> None:
    """A layer that shows other letters than the page gets both flags."""
    confidence, flags = judge(Evidence(100, agreement=0.2))

    assert confidence.method is ConfidenceMethod.CHECKED_LAYER
    assert flags == ("unreadable", "uncertain")


def test_a_layer_of_unknown_origin_is_judged_by_its_words() -> None:
    """Plausible words give a score below that of a visible layer; noise is unreadable."""
    sound, noise = (
        judge_unknown_layer("the meter was read on Monday " * 5),
        judge_unknown_layer("mmtZk rrnbhZ qdvj " * 9),
    )

    assert (sound[0].score, sound[1]) == (0.85, ())
    assert noise[0].score < 0.4 and noise[1] == ("unreadable", "uncertain")
    assert noise[0].method is ConfidenceMethod.UNKNOWN_LAYER


GERMAN = "Der Pegel im Brunnen wird gemessen, bevor die Pumpe läuft, und noch einmal nach einer Stunde Betrieb."
FRENCH = "Le niveau dans le forage est mesuré avant que la pompe ne démarre, puis une heure après la mise en marche."
SPANISH = "El nivel del pozo se mide antes de que arranque la bomba y después de una hora de funcionamiento."
# From the Universal Declaration of Human Rights.
POLISH = "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Są oni obdarzeni rozumem"
CZECH = "Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Jsou nadáni rozumem a svědomím a mají"
TURKISH = "Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. Akıl ve vicdana sahiptirler ve birbirlerine"
FINNISH = (
    "Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Heille on annettu järki ja omatunto"
)
SWEDISH = (
    "Alla människor äro födda fria och lika i värde och rättigheter. De äro utrustade med förnuft och samvete och böra"
)
DANISH = "Alle mennesker er født frie og lige i værdighed og rettigheder. De er udstyret med fornuft og samvittighed"
HUNGARIAN = (
    "Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Az emberek, ésszel és lelkiismerettel"
)
VIETNAMESE = "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Mọi con người đều được"
ROMANIAN = "Toate fiinţele umane se nasc libere şi egale în demnitate şi în drepturi. Ele sunt înzestrate cu raţiune"
CROATIAN = "Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima. Ona su obdarena razumom i sviješću"
OTHERS = (POLISH, CZECH, TURKISH, FINNISH, SWEDISH, DANISH, HUNGARIAN, VIETNAMESE, ROMANIAN, CROATIAN)
CODE = "if (currentUser) throw new NotFoundException(`userId`); return currentUser.firstName + httpRequest.userService"


@pytest.mark.parametrize("text", OTHERS)
@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_prose_in_other_languages_is_not_suspicious(text: str, form: Literal["NFC", "NFD"]) -> None:
    """Prose in a language with letters of its own is above the share below which a layer is compared."""
    share, words = measure_plausibility(unicodedata.normalize(form, text))

    assert share > SUSPICIOUS and words >= 10


@pytest.mark.parametrize("text", OTHERS)
def test_wrong_letters_are_implausible_in_any_language(text: str) -> None:
    """Prose whose fonts map each letter to another is below it, although the languages are many."""
    shifted = text.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "zabcdefghijklmnopqrstuvwxy"))

    assert measure_plausibility(shifted)[0] < SUSPICIOUS


def test_identifiers_are_not_judged() -> None:
    """Names in programs that are joined English words are not odd; other words with inner capitals are."""
    assert measure_plausibility(CODE)[0] == 1.0
    assert measure_plausibility("mmTtzk vKjzq qxBvt") == (0.0, 3)


def test_words_with_unknown_letters_are_not_judged() -> None:
    """A word with a letter that is in no table is neither judged nor split at that letter."""
    assert measure_plausibility("þetta ĝangalo ŵnvwq") == (1.0, 0)


@pytest.mark.parametrize("text", [texts.ENGLISH, GERMAN, FRENCH, SPANISH])
def test_prose_is_plausible(text: str) -> None:
    """Prose in a known language has hardly a word that cannot be one."""
    share, words = measure_plausibility(text)

    assert share > 0.9 and words >= 12


def test_wrong_letters_are_implausible() -> None:
    """Text whose fonts map each letter to another, and text with the errors of bad OCR, have a low share."""
    shifted = texts.ENGLISH.translate(str.maketrans("abcdefghijklmnopqrstuvwxyz", "zabcdefghijklmnopqrstuvwxy"))

    assert measure_plausibility(shifted)[0] < 0.5
    assert measure_plausibility("tne Orefon saUed f,.om NVvw Y0rkk to thc Harhbxr wi1h jjre rnen")[0] < 0.7


def test_nothing_is_said_about_other_scripts() -> None:
    """Words in other than Latin script are not judged."""
    assert measure_plausibility(texts.KOREAN) == measure_plausibility(texts.CHINESE) == (1.0, 0)


@given(st.text())
def test_any_text_has_a_plausibility(text: str) -> None:
    """The share is from 0 to 1, and 1 where no word was judged."""
    share, words = measure_plausibility(text)

    assert 0 <= share <= 1
    assert words or share == 1

"""Scans in scripts that RapidOCR does not know, read with Tesseract's language files."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Indel, LCSseq

from scripts.bench.scans import LANGUAGES, Setting, draw_thin
from twopass.engines.cpu.engine import CpuEngine
from twopass.engines.cpu.page import read_page
from twopass.errors import Code
from twopass.families.layout.family import LayoutFamily
from twopass.pages import ocr, orientation, scripts, tesseract
from twopass.pages.ocr import OcrLine
from twopass.pages.rendered_page import PagePointer
from twopass.pages.scripts import PageLanguage, Tesseract
from twopass.pages.shared_pixels import Pixels
from twopass.pages.strips import Array
from twopass.pages.tesseract import Glyph, TesseractFailed
from twopass.steps import fallback

FOLDER = tesseract.find_folder()
INSTALLED = tesseract.list_languages(FOLDER) if FOLDER else frozenset()
TEXTS = {
    "kor": "린다흐 정수장은 두 곳의 샘과 한 곳의 관정에서 취수한 물을 주민에게 공급하고 있다. 측정 결과는 매년 봄에 "
    "의회에서 검토한다. 수위는 펌프가 시작되기 전에 측정된다.",
    "rus": "Водоканал снабжает жителей водой из двух источников и одной скважины. Результаты измерений рассматриваются "
    "советом каждую весну. Уровень измеряется до пуска насоса.",
    "ara": "تقوم محطة المياه بتزويد السكان بالمياه من نبعين وبئر واحدة. يراجع المجلس نتائج القياسات كل ربيع. يقاس "
    "المستوى قبل تشغيل المضخة.",
}
GEORGIAN = (
    "წყლის სადგური ამარაგებს მოსახლეობას წყლით ორი წყაროდან",
    "საბჭო ყოველ გაზაფხულზე განიხილავს გაზომვის შედეგებს",
    "დონე იზომება ტუმბოს ჩართვამდე და ერთი საათის შემდეგ",
)
HEBREW = (
    "תחנת המים מספקת לתושבים מים משני מעיינות ומבאר אחת",
    "תוצאות המדידות נבדקות בכל אביב על ידי המועצה",
    "המפלס נמדד לפני הפעלת המשאבה ולאחר שעה של עבודה",
)
ARABIC = (
    "تقوم محطة المياه بتزويد السكان بالمياه من نبعين وبئر واحدة",
    "يقاس المستوى قبل تشغيل المضخة وبعد ساعة من عملها",
    "يراجع المجلس نتائج القياسات في كل ربيع من السنة",
)
MIXED = {
    "rus": "По данным OECD и World Bank, расходы выросли на 12 %. Программа SCADA контролирует насосы Grundfos CR 95 и "
    "передаёт данные в систему Microsoft Azure каждые 15 минут. Отчёт подготовлен в Excel.",
    "kor": "OECD와 World Bank 자료에 따르면 비용이 12% 증가했다. SCADA 프로그램은 Grundfos 펌프를 제어하고 Microsoft "
    "Azure 시스템으로 데이터를 15분마다 전송한다.",
    "ara": "وفقا لبيانات OECD و World Bank ارتفعت التكاليف بنسبة 12. يتحكم برنامج SCADA في مضخات Grundfos ويرسل "
    "البيانات إلى نظام Microsoft Azure كل 15 دقيقة.",
}
GREEK = (
    "Η υπηρεσία ύδρευσης τροφοδοτεί τους κατοίκους με νερό από δύο πηγές και μία γεώτρηση. Τα αποτελέσματα των "
    "μετρήσεων εξετάζονται από το συμβούλιο κάθε άνοιξη."
)
SHORT = {"rus": "Насос запущен в марте.", "kor": "펌프가 봄에 시작되었다."}
RTL = re.compile("[\u0590-\u06ff]")
ENGLISH = "The level in the borehole is measured before the pump starts and after it has run for one hour."


def needs(*languages: str) -> pytest.MarkDecorator:
    """Run the test where these language files are installed, and in CI in any case."""
    packages = " ".join(f"tesseract-ocr-{language}" for language in languages)
    is_missing = not set(languages) <= INSTALLED and not os.environ.get("CI")
    return pytest.mark.skipif(is_missing, reason=f"apt-get install {packages}")


def draw(*paragraphs: str, noise: float = 0.0, size: int = 12) -> Pixels:
    """A page with these paragraphs; `noise` is in grey levels."""
    html = "".join(
        f'<p dir="{"rtl" if RTL.search(text) else "ltr"}" style="font-size:{size}pt">{text}</p>' for text in paragraphs
    )
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=420)
        page.insert_htmlbox((60, 40, 535, 400), html)
        pixmap = page.get_pixmap(dpi=144)
    pixels = Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples))
    grain = np.random.default_rng(0).normal(0, noise, (*pixels.array().shape[:2], 1))
    noisy = np.clip(pixels.array() + grain, 0, 255).astype(np.uint8)
    return Pixels(pixmap.width, pixmap.height, data=noisy.tobytes())


def draw_lines(*lines: str) -> Array:
    """The pixels of a page with these lines, one a paragraph, in 11 point."""
    direction = "ltr" if lines[0] in GEORGIAN else "rtl"
    html = "".join(f'<p dir="{direction}" style="font-size:11pt;margin:6pt 0">{line}</p>' for line in lines)
    with pymupdf.open() as document:
        page = document.new_page(width=500, height=350)
        page.insert_htmlbox((40, 30, 460, 320), html)
        pixmap = page.get_pixmap(dpi=144)
    return Pixels(pixmap.width, pixmap.height, data=bytes(pixmap.samples)).array()


def open_with(*languages: str) -> Tesseract:
    """The installed Tesseract as if only these language files were there."""
    installed = scripts.open_tesseract(FOLDER)
    assert installed
    return replace(installed, languages=frozenset(languages))


def read(pixels: Pixels, tessdata: Any = FOLDER, language: str | None = None) -> Any:
    tesseract = scripts.open_tesseract(tessdata)
    return json.loads(read_page(PagePointer("", 1, is_pdf=False), pixels, language, tesseract))


def read_array(array: Array, tesseract: Tesseract | None, hint: str | None = None) -> ocr.OcrResult:
    return ocr.read_lines(array, ocr.detect_lines(array), hint, tesseract=tesseract)


def recall(answer: Any, text: str) -> float:
    """The share of the text's letters that were read, in order; Korean lines end within words."""
    lines = [line["text"] for box in answer["boxes"] for line in box.get("lines", ())]
    expected, found = "".join(text.split()), "".join("".join(lines).split())
    return float(LCSseq.similarity(expected, found)) / len(expected)


@pytest.mark.parametrize("language", [pytest.param(name, marks=needs(name)) for name in ("kor", "rus")])
def test_a_scan_is_read_in_its_language(language: str) -> None:
    """Without a hint, the language is found in the pixels, and the answer names it."""
    answer = read(draw(*[TEXTS[language]] * 3))

    assert answer["tesseract"] == language and not answer["unreadable_script"]
    assert recall(answer, TEXTS[language] * 3) >= 0.97


@needs("ara")
def test_an_arabic_scan_is_read_in_reading_order() -> None:
    """Tesseract overlooks short last lines of paragraphs; the long lines are exact."""
    answer = read(draw(*[TEXTS["ara"]] * 3))

    assert answer["tesseract"] == "ara"
    assert recall(answer, TEXTS["ara"] * 3) >= 0.75


@pytest.mark.parametrize("language", [pytest.param(name, marks=needs(name, "eng")) for name in sorted(MIXED)])
def test_latin_words_in_lines_of_another_script_are_read(language: str) -> None:
    """No line is lost because RapidOCR reads the Latin words in it, and these words do not become digits."""
    answer = read(draw(MIXED[language], TEXTS[language]))

    words = " ".join(line["text"] for box in answer["boxes"] for line in box["lines"])
    names = {"OECD", "World Bank", "SCADA", "Grundfos", "Microsoft Azure"}
    missing = {"Grundfos"} if language == "ara" else set()  # at the beginning of a line, Tesseract reads "95"
    assert {name for name in names if name not in words} <= missing
    assert recall(answer, f"{MIXED[language]} {TEXTS[language]}") >= 0.9
    assert not answer["unreadable_script"] and "lacks_lines" not in answer


@needs("kor", "eng")
def test_latin_words_beside_hangul_keep_their_places_and_spaces() -> None:
    """The blanks left by Latin words are no gaps between columns, and a narrow space beside one is a space."""
    answer = read(draw(MIXED["kor"], size=14))

    words = " ".join(line["text"] for box in answer["boxes"] for line in box["lines"])
    assert "OECD와 World Bank 자료에 따르면 비용이 12% 증가했다. SCADA" in words
    assert "Grundfos 펌프를 제어하고 Microsoft" in words


def draw_sign(text: str, light: bool = False) -> Array:
    """A few large letters, as on a sign, in black on white or light on dark."""
    css = f"font-size:40pt;text-align:center;margin:0;color:{'white' if light else 'black'}"
    with pymupdf.open() as document:
        page = document.new_page(width=420, height=200)
        if light:
            page.draw_rect(page.rect, fill=(0.1, 0.3, 0.6), color=None)
        page.insert_htmlbox((20, 60, 400, 150), f'<p style="{css}">{text}</p>')
        pixmap = page.get_pixmap(dpi=144)
    return np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3)


@needs("kor", "rus")
@pytest.mark.parametrize(("language", "text"), [("kor", "주차장"), ("kor", "출입금지"), ("rus", "Осторожно")])
def test_a_sign_of_a_few_letters_is_read(language: str, text: str) -> None:
    """Too few letters to choose a language by are read if a single one reads them alike in every size."""
    result = read_array(draw_sign(text), open_with("kor", "rus", "ara", "ell", "eng"))

    assert ["".join(line.text.split()) for line in result.lines] == [text] and result.language == language


@needs("kor", "rus")
@pytest.mark.parametrize(("language", "text"), [("kor", "주차장"), ("rus", "Выход"), ("rus", "Хлеб")])
def test_light_letters_on_a_dark_sign_are_read(language: str, text: str) -> None:
    """Most signs are painted so, and Tesseract wants black on white."""
    result = read_array(draw_sign(text, light=True), open_with("kor", "rus", "ara", "eng"))

    assert ["".join(line.text.split()) for line in result.lines] == [text] and result.language == language


@needs("rus", "ara")
@pytest.mark.parametrize("text", ["주차장", "출입금지", "안내", "ห้องน้ำ"])
def test_a_sign_in_an_unknown_script_gets_no_letters(text: str) -> None:
    """Neither RapidOCR nor a wrong language of Tesseract makes a word of it."""
    result = read_array(draw_sign(text), open_with("rus", "ara", "ell", "eng"))

    assert not result.lines


@needs("ell", "rus")
def test_greek_is_read_as_greek() -> None:
    """RapidOCR is sure of some Greek lines of which it reads two thirds; Tesseract's Russian looks plausible, too."""
    answer = read(draw(GREEK, GREEK))

    assert answer["tesseract"] == "ell" and recall(answer, GREEK * 2) >= 0.92


@needs("rus", "kor", "ara")
@pytest.mark.parametrize("lines", [1, 2])
def test_greek_without_its_file_is_not_read_as_something_else(lines: int) -> None:
    """Neither RapidOCR's parts of Greek nor Cyrillic look-alikes are text of the page."""
    result = read_array(draw(GREEK[: 80 * lines]).array(), open_with("rus", "kor", "ara", "eng"))

    assert result.unreadable and not result.lines


@pytest.mark.parametrize("language", [pytest.param(name, marks=needs(name)) for name in sorted(SHORT)])
def test_a_single_sentence_is_read(language: str) -> None:
    """A page with one short line is no picture."""
    result = read_array(draw(SHORT[language]).array(), scripts.open_tesseract(FOLDER))

    assert [line.text for line in result.lines] == [SHORT[language]]


@needs("rus")
def test_one_sentence_among_english_ones_is_read() -> None:
    """Much text in Latin script does not hide a line in another one."""
    answer = read(draw(ENGLISH, ENGLISH, TEXTS["rus"][:60], ENGLISH))

    assert recall(answer, f"{ENGLISH}{ENGLISH}{TEXTS['rus'][:60]}{ENGLISH}") >= 0.98


@needs("kor")
def test_a_grainy_scan_is_read() -> None:
    """The grain of paper and film is not taken for the texture of a photograph."""
    answer = read(draw(TEXTS["kor"], TEXTS["kor"], noise=14))

    assert recall(answer, TEXTS["kor"] * 2) >= 0.95


def test_lost_lines_are_reported() -> None:
    """Lines that nobody can read on a page with other text are left out, and the page has a warning."""
    answer = read(draw(*[ENGLISH] * 4, TEXTS["kor"][:60]), tessdata=None)
    parsed = LayoutFamily().parse(json.dumps(answer), 1)

    (problem,) = fallback.list_warnings(parsed.flags, 1)
    assert parsed.reason is None and recall(answer, ENGLISH * 4) == 1.0
    assert problem.code is Code.UNREADABLE_SCRIPT and "TESSDATA_DIR" in problem.message


def test_a_damaged_language_file_costs_only_its_lines(tmp_path: Path) -> None:
    """Tesseract refuses such a file; the page is read without it, and says what is missing."""
    (tmp_path / "kor.traineddata").write_bytes(b"damaged")
    with pytest.raises(TesseractFailed):
        tesseract.recognise([np.full((40, 200, 3), 255, np.uint8)], "kor", 40, tmp_path)

    answer = read(draw(ENGLISH, TEXTS["kor"]), tmp_path)

    assert answer["unreadable_script"] and "tesseract" not in answer


@needs("rus")
def test_tesseract_is_named_for_pictures_of_a_page_with_a_text_layer(tmp_path: Path) -> None:
    """A large picture of Russian text is read, and the answer says with what."""
    pixels = draw(TEXTS["rus"])
    with pymupdf.open() as document:
        page = document.new_page(width=595, height=842)
        page.insert_text((60, 60), ENGLISH[:70], fontsize=11)
        pixmap = pymupdf.Pixmap(pymupdf.csRGB, pixels.width, pixels.height, pixels.array().tobytes(), False)
        page.insert_image((0, 200, 595, 620), pixmap=pixmap)
        shown = page.get_pixmap(dpi=144)
        document.save(tmp_path / "page.pdf")
    pointer = PagePointer(str(tmp_path / "page.pdf"), 1)
    whole = Pixels(shown.width, shown.height, data=bytes(shown.samples))
    answer = json.loads(read_page(pointer, whole, None, scripts.open_tesseract(FOLDER)))

    assert (answer["via"], answer["tesseract"]) == ("text_layer", "rus")
    assert recall(answer, TEXTS["rus"]) >= 0.95


@needs("hin")
def test_only_unknown_parameters_are_hidden(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The Hindi file names parameters that Tesseract lacks, in every call. Other messages reach stderr."""
    strip = np.full((40, 200, 3), 255, np.uint8)
    open_with("hin").recognise([strip], "hin", 40)
    hidden = capfd.readouterr().err
    (tmp_path / "kor.traineddata").write_bytes(b"damaged")
    with pytest.raises(TesseractFailed):
        tesseract.recognise([strip], "kor", 40, tmp_path)

    assert "Parameter not found" not in hidden
    assert "Failed loading language 'kor'" in capfd.readouterr().err


@needs("kor")
def test_a_mixed_page_keeps_both() -> None:
    """English lines stay as RapidOCR read them."""
    answer = read(draw(ENGLISH, TEXTS["kor"]))

    assert recall(answer, f"{ENGLISH} {TEXTS['kor']}") >= 0.97


@needs("kor", "rus")
def test_a_wrong_hint_invents_nothing() -> None:
    """The hint is tried first, and the pixels decide."""
    answer = read(draw(TEXTS["kor"]), language="ru")

    assert answer["tesseract"] == "kor"


@needs("ara", "kor", "rus")
@pytest.mark.parametrize("lines", [GEORGIAN, HEBREW])
def test_a_script_without_its_file_is_not_read_as_digits(lines: tuple[str, ...]) -> None:
    """Tesseract's Korean sees digits in letters that it does not know, the same ones in every size."""
    result = read_array(draw_lines(*lines), open_with("ara", "kor", "rus", "eng"))

    assert result.unreadable and not result.lines


@needs("ara")
def test_the_letters_of_arabic_words_stay_together_and_in_order() -> None:
    """Words are Tesseract's own: MuPDF's text page reversed and spaced the letters of some."""
    result = read_array(draw_lines(*ARABIC), scripts.open_tesseract(FOLDER), "ar")
    words = {word for line in result.lines for word in line.text.split()}

    assert {"تشغيل", "المضخة", "عملها", "القياسات"} <= words


def test_without_language_files_nothing_is_read() -> None:
    """The page says that it cannot be read, and no Latin letters are guessed."""
    answer = read(draw(TEXTS["kor"], TEXTS["kor"]), tessdata=None)

    assert answer["unreadable_script"] and "tesseract" not in answer
    assert not [line for box in answer["boxes"] for line in box.get("lines", ())]


class CountingTesseract:
    """Reads every strip as the same text, and counts its calls."""

    def __init__(self, text: str) -> None:
        self.text, self.calls = text, 0

    def __call__(self, strips: Sequence[Array], language: str, height: int) -> list[list[list[Glyph]]]:
        self.calls += 1
        step = [strip.shape[1] / max(len(self.text), 1) for strip in strips]
        return [[[Glyph(letter, n * s, (n + 0.5) * s) for n, letter in enumerate(self.text)]] for s in step]


def test_latin_and_chinese_scans_do_not_need_it() -> None:
    """Tesseract is asked only about lines that RapidOCR cannot read."""
    recogniser = CountingTesseract("зря")
    engine = Tesseract(frozenset({"rus"}), recogniser)

    for text in (ENGLISH, "水厂从两处泉水和一口井取水，供应给居民。测量结果每年春天由议会审查。"):
        array = draw(text, text).array()
        assert ocr.read_lines(array, ocr.detect_lines(array), tesseract=engine).language is None

    assert recogniser.calls == 0


@pytest.mark.parametrize("text", ["Watcr lcvcl", "", "1234 5678", "я"])
def test_what_is_not_in_the_script_is_not_taken(text: str) -> None:
    """Latin letters that Tesseract reads in Korean lines are no text of the page."""
    array = draw(TEXTS["kor"], TEXTS["kor"]).array()
    engine = Tesseract(frozenset({"rus"}), CountingTesseract(text))

    result = ocr.read_lines(array, ocr.detect_lines(array), tesseract=engine)

    assert result.unreadable and not result.lines


def test_the_engine_names_it_only_where_it_can_be_used(tmp_path: Any) -> None:
    """Its precision is part of documents' ids; files of other languages and an empty folder change nothing."""
    (tmp_path / "eng.traineddata").touch()
    before = CpuEngine(1, tmp_path).precision
    (tmp_path / "kor.traineddata").touch()

    assert (before, CpuEngine(1).precision, CpuEngine(1, tmp_path).precision) == (
        "float32", "float32", "float32+tesseract",
    )  # fmt: skip


@given(st.frozensets(st.sampled_from(["kor", "rus", "ukr", "ara", "fas", "eng", "Hangul"])), st.none() | st.text())
def test_one_language_of_a_script_is_tried(languages: frozenset[str], hint: str | None) -> None:
    """Whatever is installed and hinted, candidates are installed and of different scripts."""
    candidates = scripts.list_candidates(languages, hint)

    assert set(candidates) <= languages
    assert len({scripts._find_script(name) for name in candidates}) == len(candidates)


def test_the_hinted_language_comes_first() -> None:
    """Ukrainian is read with its own file if that is there."""
    assert scripts.list_candidates(frozenset({"kor", "rus", "ukr"}), "uk")[0] == "ukr"
    assert scripts.list_candidates(frozenset({"kor", "rus"}), "uk-UA")[0] == "rus"


@pytest.mark.parametrize("language", sorted(TEXTS))
def test_a_page_in_another_script_is_not_turned(language: str) -> None:
    """RapidOCR's scores say nothing about which way up such a page is, unless one way is legible."""
    assert orientation.detect_turn(draw(*[TEXTS[language]] * 3).array()) == 0


@pytest.mark.parametrize(
    ("code", "name", "seed", "least"),
    [
        pytest.param("ko", "kor", 0, 0.99, marks=needs("kor")),  # 0.984 where a line is two for Tesseract
        pytest.param("ar", "ara", 1, 0.6, marks=needs("ara")),  # 0.32 without the dots that trimming cuts off
    ],
)
def test_thin_strokes_are_read_whole_and_once(code: str, name: str, seed: int, least: float) -> None:
    """Tesseract takes some lines of broken strokes for two, and reads their letters in both."""
    setting = Setting.draw(seed)
    language = next(replace(one, setting=setting) for one in LANGUAGES if one.code == code)
    scan = draw_thin(language)
    lines = [OcrLine(corners, "", 0.0) for corners in ocr.detect_lines(scan.pixels)]
    assert FOLDER
    engine = Tesseract(frozenset({name}), partial(tesseract.recognise, folder=FOLDER))

    texts = scripts.read(engine, ocr._cut_rgb_lines(scan.pixels, lines, scan.pixels), PageLanguage(name, 0.9))

    read, truth = ("".join("".join(part or "" for part in parts).split()) for parts in (texts, scan.truth))
    assert Indel.normalized_similarity(read, truth) >= least

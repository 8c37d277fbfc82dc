"""Fit the numbers of text/confidence.py's _CALIBRATIONS to drawn scans, and check them on scans of other texts.

    python -m scripts.bench calibration [--only LANGUAGE] [--languages FOLDER] [--fonts FOLDER] [--json FILE]
    python -m scripts.bench calibration --fit FILE …

Pages are drawn in eight sizes and three degrees of noise, in MuPDF's fonts and those of the folder that are named
fit-LANGUAGE-….ttf. The numbers are checked on other sizes, sentences, and fonts: check-LANGUAGE-….ttf.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import SequenceMatcher
from itertools import combinations_with_replacement
from pathlib import Path
from statistics import mean, median

import numpy as np
import pymupdf

from scripts.bench import scans
from scripts.bench.harness import create_parser
from scripts.bench.scans import LANGUAGES, Array, Language
from twopass.pages import ocr, scripts, tesseract
from twopass.text.confidence import ANY_SCRIPT, HEIGHTS, Calibration, Evidence, find_calibration, judge

SIZES = (8, 10, 12, 14, 17, 21, 28, 40)  # pixels of the type
CHECKED_SIZES = (9, 11, 13, 15, 19, 24, 34)
LEAST_NOISY = 12  # pixels: smaller type with the second degree of noise is not detected
LETTERS, ZOOM = 200, 2.0  # of a page; pixels for a point
MIN_WORDS = 5  # of a page that is judged
GRID = tuple(round(0.5 + 0.02 * step, 2) for step in range(26))  # shares that a limit may be
LEASTS = (0.0, 0.84)  # of confidence: none, and one below UNCERTAIN_BELOW, so that the text is flagged
MIN_GAIN = 0.98  # of the squared error of equal limits: that of others must be less
UNSPACED = frozenset(language.code for language in LANGUAGES if not language.spaced)
UNJUDGED = ("ko",)  # its lines end within words
PUNCTUATION = ".,;:!?।،。，'\"()-–—"

CHECKED = {
    "en": (
        "Along the ridge a row of poplars marks the border between the two parishes.",
        "She kept the receipts in a tin box until the auditors came in March.",
        "Most visitors prefer the quiet chapel behind the orchard to the famous cathedral.",
        "Its engine was rebuilt twice, yet the ferry still loses oil every summer.",
        "Our cousin teaches geometry and sells honey from eleven hives.",
    ),
    "de": (
        "Hinter dem Hügel grenzt eine Reihe hoher Pappeln die beiden Gemeinden voneinander ab.",
        "Sie bewahrte alle Quittungen in einer Blechdose auf, bis die Prüfer kamen.",
        "Unsere Großmutter verkauft Honig aus elf Bienenstöcken und übt täglich Klavier.",
        "Das Fährschiff verliert jeden Sommer Öl, obwohl der Motor zweimal überholt wurde.",
    ),
    "ru": (
        "За холмом ряд высоких тополей отмечает границу между двумя деревнями.",
        "Она хранила квитанции в жестяной коробке, пока весной не пришли ревизоры.",
        "Двоюродный брат преподаёт геометрию и продаёт мёд из одиннадцати ульев.",
        "Большинство гостей предпочитает тихую часовню за фруктовым садом.",
    ),
    "el": (
        "Πίσω από τον λόφο μια σειρά από λεύκες δείχνει τα σύνορα των δύο χωριών.",
        "Φύλαγε τις αποδείξεις σε ένα μεταλλικό κουτί μέχρι να έρθουν οι ελεγκτές.",
        "Ο ξάδελφός μας διδάσκει γεωμετρία και πουλάει μέλι από έντεκα κυψέλες.",
        "Οι περισσότεροι επισκέπτες προτιμούν το ήσυχο εκκλησάκι πίσω από τον κήπο.",
    ),
    "ar": (
        "خلف التل صف من الأشجار العالية يفصل بين القريتين القديمتين.",
        "كانت تحفظ الإيصالات في علبة معدنية حتى وصل المدققون في الربيع.",
        "يدرس ابن عمنا الهندسة ويبيع العسل من إحدى عشرة خلية.",
        "يفضل معظم الزوار الكنيسة الهادئة خلف البستان الكبير.",
    ),
    "zh": (
        "山后有一排高大的杨树，标出两个村庄之间的边界。",
        "她把所有收据放在铁盒里，直到春天审计员到来。",
        "我们的表弟教几何，还卖十一个蜂箱里的蜂蜜。",
        "多数游客更喜欢果园后面那座安静的小教堂。",
    ),
    "th": (
        "หลัง|เนินเขา|มี|ต้นไม้|สูง|เรียง|เป็น|แถว|บอก|เขตแดน|ของ|สอง|หมู่บ้าน",
        "เธอ|เก็บ|ใบเสร็จ|ทั้งหมด|ไว้|ใน|กล่อง|เหล็ก|จนกระทั่ง|ผู้ตรวจสอบ|มาถึง",
        "ลูกพี่ลูกน้อง|ของ|เรา|สอน|เรขาคณิต|และ|ขาย|น้ำผึ้ง|จาก|รัง|สิบเอ็ด|รัง",
        "ผู้มาเยือน|ส่วนใหญ่|ชอบ|โบสถ์|เงียบ|หลัง|สวน|ผลไม้",
    ),
    "hi": (
        "पहाड़ी के पीछे ऊँचे पेड़ों की एक पंक्ति दो गाँवों की सीमा बताती है।",
        "वह सारी रसीदें टिन के डिब्बे में रखती थी जब तक जाँच करने वाले नहीं आए।",
        "हमारा चचेरा भाई ज्यामिति पढ़ाता है और ग्यारह छत्तों का शहद बेचता है।",
        "अधिकतर लोग बाग के पीछे का शांत मंदिर अधिक पसंद करते हैं।",
    ),
}


@dataclass(frozen=True)
class Reading:
    """A drawn page as OCR read it: its font, the median height of its lines, their mean score, right words of all."""

    language: str
    font: str
    height: float
    score: float
    right: float
    checks: bool  # whether the numbers are checked on it, and not fitted to it

    def judge(self, calibration: Calibration | None = None, knows_height: bool = True) -> float:
        """Its confidence with a calibration, or with the one that its language has."""
        own = calibration or find_calibration(next(one for one in LANGUAGES if one.code == self.language).sentences[0])
        height = self.height if knows_height else 0.0
        return judge(Evidence(0, recogniser=self.score, calibration=own, line_height=height))[0].score


def main(arguments: list[str]) -> None:
    options = _parse(arguments)
    if options.fit:
        readings = [Reading(**row) for path in options.fit for row in json.loads(path.read_text())]
    else:
        readings = list(_read_all(options.only, options.languages, options.fonts))
    if options.json:
        options.json.write_text(json.dumps([asdict(reading) for reading in readings]))
    for language in dict.fromkeys(reading.language for reading in readings):
        _report(language, [reading for reading in readings if reading.language == language])


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = create_parser("scripts.bench calibration", __doc__)
    parser.add_argument("--only", help="the code of one language")
    parser.add_argument("--languages", type=Path, help="the folder of Tesseract's language files")
    parser.add_argument("--fonts", type=Path, help="a folder of further fonts")
    parser.add_argument("--json", type=Path, help="where to write what was read")
    parser.add_argument("--fit", type=Path, nargs="+", help="what was read before, instead of drawing scans")
    return parser.parse_args(arguments)


def _read_all(only: str | None, languages: Path | None, fonts: Path | None) -> Iterator[Reading]:
    engine = scripts.open_tesseract(tesseract.find_folder(languages))
    for language in LANGUAGES:
        if language.code in UNJUDGED or (only and language.code != only):
            continue
        own = engine and replace(engine, languages=engine.languages & {scripts.LATIN, language.tesseract})
        yield from _read_sizes(language, SIZES, ("sans-serif", "serif"), own, checks=False)
        yield from _read_sizes(language, SIZES, _find_fonts(fonts, f"fit-{language.code}"), own, checks=False)
        other = replace(language, sentences=CHECKED[language.code])
        names = _find_fonts(fonts, f"check-{language.code}") or ["monospace"]
        yield from _read_sizes(other, CHECKED_SIZES, names, own, checks=True)


def _find_fonts(folder: Path | None, name: str) -> list[str]:
    return [str(path) for path in sorted(folder.glob(f"{name}-*.ttf"))] if folder else []


def _read_sizes(
    language: Language, sizes: Sequence[int], fonts: Sequence[str], engine: scripts.Tesseract | None, checks: bool
) -> Iterator[Reading]:
    for number, size in enumerate(sizes if fonts else ()):
        for degree in range(3 if size >= LEAST_NOISY else 2):
            font = fonts[(number + degree) % len(fonts)]
            array, truth = draw_paragraph(language, size, degree, font)
            result = ocr.read_lines(array, ocr.detect_lines(array), language.code, tesseract=engine)
            reading = _judge(language, font, result.lines, truth, checks)
            print(size, degree, reading, flush=True)
            if reading:
                yield reading


def draw_paragraph(language: Language, size: int, degree: int, font: str) -> tuple[Array, str]:
    """A paragraph in type of this size, and its text. `font` is a generic family of CSS or the path of a file."""
    draw, text = random.Random(f"{language.code} {size} {degree}"), ""
    blank, letters = " " if language.spaced or language.code == "th" else "", LETTERS
    if language.code == "zh":
        letters //= 2
    while len(text) < letters:
        text += blank + blank.join(draw.sample(language.sentences, len(language.sentences)))
    text = text.strip()
    width, height = (24 * size) / ZOOM + 40, (60 * size) / ZOOM + 40
    path = Path(font)
    family, css, archive = font, "", None
    if path.suffix:
        family, archive = "own", pymupdf.Archive(str(path.parent))
        css = f'@font-face{{font-family:own;src:url("{path.name}");}}'
    style = f"font-family:{family};font-size:{size / ZOOM}pt;line-height:1.3;margin:0"
    paragraph = f'<p dir="{"rtl" if language.rtl else "ltr"}" style="{style}">{text.replace("|", chr(0x200B))}</p>'
    with pymupdf.open() as document:
        page = document.new_page(width=width, height=height)
        spare, _ = page.insert_htmlbox((20, 20, width - 20, height - 20), paragraph, css=css, archive=archive)
        pixmap = page.get_pixmap(matrix=pymupdf.Matrix(ZOOM, ZOOM), clip=(0, 0, width, height - spare))
    array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3).copy()
    return scans.add_noise(array, degree, size) if degree else array, text.replace("|", "")


def _judge(language: Language, font: str, lines: Sequence[ocr.OcrLine], truth: str, checks: bool) -> Reading | None:
    """The reading of a page; None if hardly anything was read."""
    ordered = sorted(lines, key=lambda line: line.box.y0 + line.box.y1)
    found = [word for line in ordered for word in _split(language, line.text)]
    if len(found) < MIN_WORDS:
        return None
    blocks = SequenceMatcher(None, found, _split(language, truth), autojunk=False).get_matching_blocks()
    return Reading(
        language=language.code,
        font=Path(font).name,
        height=round(median(line.height for line in lines), 2),
        score=round(mean(line.score for line in lines), 4),
        right=round(sum(block.size for block in blocks) / len(found), 4),
        checks=checks,
    )


def _split(language: Language, text: str) -> list[str]:
    """The words of a text; letters in scripts without spaces."""
    if language.spaced:
        return [word for word in (part.strip(PUNCTUATION) for part in text.casefold().split()) if word]
    return [letter for letter in text if letter.isalnum()]


def _report(language: str, readings: Sequence[Reading]) -> None:
    fitted = fit([reading for reading in readings if not reading.checks])
    print(f"{language}: limits {fitted.limits}, least {fitted.least}")
    for title, own in (
        ("fitted to", [reading for reading in readings if not reading.checks]),
        ("checked on", [reading for reading in readings if reading.checks]),
    ):
        errors = [measure_error(own, calibration) for calibration in (ANY_SCRIPT, None, fitted)]
        print(f"  {title} {len(own)}: off by {errors[0]:.3f} without, {errors[1]:.3f} as it is, {errors[2]:.3f} so")
        for least, most in zip((0, *HEIGHTS), (*HEIGHTS, 1000), strict=True):
            bin = [reading for reading in own if least <= reading.height < most]
            if bin:
                judged = mean(reading.judge() for reading in bin)
                right = mean(reading.right for reading in bin)
                print(f"    {least:3} to {most:4} pixels: {judged:.2f} for {right:.2f} right ({len(bin)})")


def fit(readings: Sequence[Reading]) -> Calibration:
    """The limits, which never fall with the height, and the least share with the smallest squared error.

    Equal limits are preferred where others are hardly better.
    """
    limits = np.array(list(combinations_with_replacement(GRID[::-1], len(HEIGHTS))))[:, ::-1]
    is_flat = limits[:, 0] == limits[:, -1]
    weights = np.array([[np.interp(own.height, HEIGHTS, row) for row in np.eye(len(HEIGHTS))] for own in readings])
    most = limits @ weights.T  # of each reading, with each choice of limits
    scores = np.array([own.judge(ANY_SCRIPT) for own in readings])
    right = np.array([own.right for own in readings])
    found: list[tuple[float, Calibration]] = []
    for least in LEASTS if readings[0].language in UNSPACED else LEASTS[:1]:
        errors = np.square(np.minimum(np.maximum(scores, least), most) - right).mean(axis=1)
        errors = np.where(is_flat, MIN_GAIN * errors, errors)
        calibration = Calibration("", tuple(map(float, limits[errors.argmin()])), least)
        found.append((float(errors.min()), calibration))
    return min(found, key=lambda one: one[0])[1]


def measure_error(
    readings: Sequence[Reading], calibration: Calibration | None = None, knows_height: bool = True
) -> float:
    """The mean difference of confidence and share of right words."""
    return mean([abs(own.judge(calibration, knows_height) - own.right) for own in readings] or [0.0])

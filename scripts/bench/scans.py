"""Read drawn scans with the cpu engine and with Tesseract: characters right, word order, time, confidence.

    python -m scripts.bench scans [--only KIND] [--seed N] [--pictures FOLDER] [--json FILE]

Tesseract is Debian's `tesseract`, told the right language; it is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import numpy.typing as npt
import pymupdf
from PIL import Image, ImageDraw, ImageFilter
from rapidfuzz.distance import Indel, LCSseq

from scripts.bench.harness import create_parser
from twopass.engines.cpu.page import read_page
from twopass.families.layout.family import LayoutFamily
from twopass.pages import scripts, tesseract
from twopass.pages.rendered_page import PagePointer
from twopass.pages.shared_pixels import Pixels

_WORD = re.compile(r"[^\W_]+")
_MARKUP = re.compile(r"[*_#\\]")


@dataclass(frozen=True)
class Row:
    """How one reader read one scan, in shares: characters that are right, words found that are in order, and words
    that are right, which `confidence` estimates. In scripts without spaces, words are letters.
    """

    kind: str
    language: str
    reader: str
    characters: float
    order: float
    words: float
    seconds: float
    confidence: float | None = None


def main(arguments: list[str]) -> None:
    options = _parse(arguments)
    rows: list[Row] = []
    engine = scripts.open_tesseract(tesseract.find_folder())
    for scan in draw_all(options.seed):
        if options.only and options.only not in f"{scan.kind} {scan.language.code}":
            continue
        rows.append(_read_ours(scan, engine, options.pictures))
        if shutil.which("tesseract") and not options.ours:
            rows.append(_read_tesseract(scan))
        print(
            *(_format(row) for row in rows if (row.kind, row.language) == (scan.kind, scan.language.code)),
            sep="\n",
            flush=True,
        )
    _summarise(rows)
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = create_parser("scripts.bench scans", __doc__)
    parser.add_argument("--only", help="scans whose kind and language have this text")
    parser.add_argument("--ours", action="store_true", help="without Tesseract")
    parser.add_argument("--pictures", type=Path, help="a folder for the pages with boxes in reading order")
    parser.add_argument(
        "--seed", type=int, default=0, help="draw the same kinds in another type, size, gutter and order of sentences"
    )
    parser.add_argument("--json", type=Path)
    return parser.parse_args(arguments)


def _read_ours(scan: Scan, engine: scripts.Tesseract | None, pictures: Path | None) -> Row:
    height, width = scan.pixels.shape[:2]
    pixels = Pixels(width, height, data=scan.pixels.tobytes())
    started = time.process_time()
    answer = read_page(PagePointer("", 1, is_pdf=False), pixels, scan.language.code, engine)
    seconds = time.process_time() - started
    page = LayoutFamily().parse(answer, 1)
    texts = [element.text or "" for element in page.elements]
    if pictures:
        _draw_boxes(scan, page.elements, pictures)
    scores = [(element.confidence.score, len(element.text or "")) for element in page.elements if element.confidence]
    total = sum(length for _, length in scores)
    confidence = sum(score * length for score, length in scores) / total if total else None
    return _score(scan, "twopass", texts, seconds, confidence)


def _read_tesseract(scan: Scan) -> Row:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scan.png"
        Image.fromarray(scan.pixels).save(path, dpi=(144, 144))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["tesseract", str(path), "stdout", "-l", scan.language.tesseract]
        run = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_THREAD_LIMIT": "1"})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return _score(scan, "tesseract", [run.stdout], after.ru_utime - before.ru_utime, None)


def _score(scan: Scan, reader: str, texts: Iterable[str], seconds: float, confidence: float | None) -> Row:
    read, truth = _MARKUP.sub("", "".join(texts)), "".join(scan.truth)
    characters = Indel.normalized_similarity("".join(read.split()), "".join(truth.split()))
    found, words = _split(scan, texts), _split(scan, scan.truth)
    common = (Counter(found) & Counter(words)).total()
    in_order = LCSseq.similarity(found, words)
    order = in_order / common if common else 0.0
    share = in_order / len(found) if found else 0.0
    return Row(scan.kind, scan.language.code, reader, characters, order, share, seconds, confidence)


def _split(scan: Scan, texts: Iterable[str]) -> list[str]:
    text = "\n".join(texts)
    return _WORD.findall(text.casefold()) if scan.language.spaced else [letter for letter in text if letter.isalnum()]


def _format(row: Row) -> str:
    confidence = "    " if row.confidence is None else f"{row.confidence:.2f}"
    return (
        f"{row.kind:22} {row.language} {row.reader:9} characters {row.characters:.3f} order {row.order:.3f} "
        f"words {row.words:.3f} confidence {confidence} cpu {row.seconds:5.1f} s"
    )


def _summarise(rows: Sequence[Row]) -> None:
    for reader in dict.fromkeys(row.reader for row in rows):
        own = [row for row in rows if row.reader == reader]
        columns = [row.order for row in own if "column" in row.kind or row.kind == "spread"]
        print(
            f"{reader:9} {len(own)} scans: characters {mean(row.characters for row in own):.3f}, order of columns "
            f"{mean(columns or [0.0]):.3f}, {sum(row.seconds for row in own):.0f} s of processor time"
        )
        judged = [(row.confidence, row.words) for row in own if row.confidence is not None]
        if judged:
            print(f"{'':9} confidence is off by {mean(abs(one - other) for one, other in judged):.3f}")


def _draw_boxes(scan: Scan, elements: Sequence[Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(scan.pixels).convert("RGB")
    pen = ImageDraw.Draw(image)
    for number, element in enumerate(elements):
        for box in element.boxes:
            corners = [box.x0 * image.width, box.y0 * image.height, box.x1 * image.width, box.y1 * image.height]
            pen.rectangle(corners, outline="red", width=2)
            pen.text((corners[0] + 3, corners[1] + 3), f"{number} {element.kind}", fill="blue")
    image.save(folder / f"{scan.kind} {scan.language.code}.png")


Array = npt.NDArray[np.uint8]

DPI = 144
SCALE = DPI / 72
WIDTH, HEIGHT = 595, 420  # points of a page: half an A4 sheet
MARGIN, TOP = 36, 30
GUTTER = 0.9  # of the type size, between the columns of a page with narrow ones
LINE = 1.25  # of the type size


@dataclass(frozen=True)
class Setting:
    """How text is set: in another way for each seed, to measure scans that no threshold was chosen by."""

    seed: int = 0
    font: str = ""
    scale: float = 1.0
    gutter: float = GUTTER

    @classmethod
    def draw(cls, seed: int) -> Setting:
        if not seed:
            return cls()
        draw = random.Random(seed)
        return cls(seed, draw.choice(("sans-serif", "serif")), draw.uniform(0.9, 1.15), draw.uniform(0.85, 1.3))

    @property
    def css(self) -> str:
        return f"font-family:{self.font};" if self.font else ""


@dataclass(frozen=True)
class Language:
    """A language: its code, Tesseract's, and sentences to draw, in which `|` is where a line may break."""

    code: str
    tesseract: str
    sentences: tuple[str, ...]
    rtl: bool = False
    spaced: bool = True  # whether blanks separate its words
    setting: Setting = Setting()


@dataclass(frozen=True)
class Scan:
    """The pixels of a page, and its text in reading order, one paragraph after the other."""

    kind: str
    language: Language
    pixels: Array
    truth: tuple[str, ...]


LANGUAGES = (
    Language(
        "en",
        "eng",
        (
            "The harbour board met on Tuesday and heard a report on the state of the northern pier.",
            "Repairs were put out to tender in April, and three firms from the valley made an offer.",
            "Traffic through the lock rose by eleven per cent, although the gates were shut for a week.",
            "Members asked that the wages of the night watch be raised before the winter storms begin.",
            "A letter from the school thanks the crew of the tug for a day on the water.",
            "Nobody had expected that the old crane would pass its inspection without a single remark.",
            "The new lamps on the breakwater burn all night and can be seen from nine miles away.",
            "Fishermen complain that the ice house closes at noon when most of the boats return.",
        ),
    ),
    Language(
        "de",
        "deu",
        (
            "Der Hafenausschuss hörte am Dienstag einen Bericht über den Zustand der nördlichen Mole.",
            "Drei Firmen aus größeren Städten gaben im April ein Angebot für die Ausbesserung ab.",
            "Während der Schließung der Tore stieg der Verkehr über die südliche Straße um elf Prozent.",
            "Die Mitglieder wünschten höhere Löhne für die Nachtwächter, bevor die Stürme beginnen.",
            "Niemand hätte erwartet, dass der alte Kran die Prüfung ohne Beanstandung besteht.",
            "Die Fischer klagen, dass das Eishaus schließt, wenn die meisten Boote zurückkehren.",
        ),
    ),
    Language(
        "ru",
        "rus",
        (
            "Водоканал снабжает жителей города водой из двух источников и одной глубокой скважины.",
            "Результаты измерений рассматриваются советом каждую весну и публикуются в газете.",
            "Уровень воды измеряется до пуска насоса и ещё раз через час после начала работы.",
            "Ремонт северной плотины начнётся осенью, когда движение судов почти прекращается.",
            "Никто не ожидал, что старый кран пройдёт проверку без единого замечания комиссии.",
            "Рыбаки жалуются, что ледник закрывается в полдень, когда возвращаются лодки.",
        ),
    ),
    Language(
        "el",
        "ell",
        (
            "Η υπηρεσία ύδρευσης τροφοδοτεί τους κατοίκους με νερό από δύο πηγές και μία γεώτρηση.",
            "Τα αποτελέσματα των μετρήσεων εξετάζονται από το συμβούλιο κάθε άνοιξη.",
            "Η στάθμη του νερού μετράται πριν από την εκκίνηση της αντλίας και μία ώρα αργότερα.",
            "Κανείς δεν περίμενε ότι ο παλιός γερανός θα περνούσε τον έλεγχο χωρίς παρατήρηση.",
            "Οι ψαράδες παραπονιούνται ότι το παγοποιείο κλείνει όταν επιστρέφουν οι βάρκες.",
        ),
    ),
    Language(
        "ar",
        "ara",
        (
            "تقوم محطة المياه بتزويد السكان بالمياه من نبعين وبئر واحدة عميقة.",
            "يراجع المجلس نتائج القياسات كل ربيع وتنشر في الصحيفة المحلية.",
            "يقاس مستوى المياه قبل تشغيل المضخة وبعد ساعة من بدء العمل.",
            "لم يتوقع أحد أن تجتاز الرافعة القديمة الفحص دون ملاحظة واحدة.",
            "يشكو الصيادون من إغلاق مخزن الثلج ظهرا عندما تعود القوارب.",
        ),
        rtl=True,
    ),
    Language(
        "ko",
        "kor",
        (
            "린다흐 정수장은 두 곳의 샘과 한 곳의 관정에서 취수한 물을 주민에게 공급하고 있다.",
            "측정 결과는 매년 봄에 의회에서 검토하고 지역 신문에 공개한다.",
            "수위는 펌프가 시작되기 전에 측정하고 한 시간 뒤에 다시 측정한다.",
            "오래된 기중기가 지적 없이 검사를 통과할 것이라고는 아무도 예상하지 못했다.",
            "어부들은 배가 돌아오는 정오에 얼음 창고가 문을 닫는다고 불평한다.",
        ),
    ),
    Language(
        "zh",
        "chi_sim",
        (
            "自来水厂用两处泉水和一口深井向居民供水。",
            "测量结果每年春天由议会审查，并在当地报纸上公布。",
            "水泵启动之前测量水位，一小时之后再测量一次。",
            "没有人预料到那台旧起重机能够顺利通过检查。",
            "渔民抱怨冰库在中午关门，而那时大多数船只正好回来。",
        ),
        spaced=False,
    ),
    Language(
        "th",
        "tha",
        (
            "สถานี|ประปา|ส่ง|น้ำ|ให้|ประชาชน|จาก|น้ำพุ|สอง|แห่ง|และ|บ่อบาดาล|หนึ่ง|บ่อ",
            "สภา|ตรวจสอบ|ผล|การวัด|ทุก|ฤดู|ใบไม้ผลิ|และ|เผยแพร่|ใน|หนังสือพิมพ์|ท้องถิ่น",
            "ระดับ|น้ำ|จะ|วัด|ก่อน|เริ่ม|เดิน|เครื่อง|สูบ|น้ำ|และ|วัด|อีกครั้ง|หลังจาก|หนึ่ง|ชั่วโมง",
            "ชาวประมง|บ่น|ว่า|โรง|น้ำแข็ง|ปิด|ตอนเที่ยง|เมื่อ|เรือ|ส่วนใหญ่|กลับมา",
        ),
        spaced=False,
    ),
    Language(
        "hi",
        "hin",
        (
            "जल विभाग दो झरनों और एक गहरे कुएँ से नगर के निवासियों को पानी देता है।",
            "परिषद हर वसंत में माप के परिणाम देखती है और समाचार पत्र में छापती है।",
            "पंप चलाने से पहले और एक घंटे के बाद पानी का स्तर मापा जाता है।",
            "किसी को आशा नहीं थी कि पुरानी क्रेन बिना किसी टिप्पणी के जाँच में सफल होगी।",
            "मछुआरे शिकायत करते हैं कि बर्फ का गोदाम दोपहर में बंद हो जाता है।",
        ),
    ),
)
ENGLISH = LANGUAGES[0]


def draw_all(seed: int = 0) -> Iterator[Scan]:
    """Every kind in English; the kinds that depend on the script in the other languages."""
    setting = Setting.draw(seed)
    for language in (replace(one, setting=setting) for one in LANGUAGES):
        is_english = language.code == ENGLISH.code
        all_columns = (2, 3, 4, 5) if is_english else (3,)
        for count in all_columns:
            yield draw_columns(language, count)
        if is_english:
            yield draw_spread(language)
            yield draw_photo(language)
            yield draw_photo(language, straddles=True)
            yield draw_headed_columns(language)
        for aspect in (8, 20) if is_english else (16,):
            yield draw_strip(language, aspect)
        if language.code == "de":
            yield draw_ragged_columns(language)
        yield draw_thin(language)
        for degree in (1, 2, 3) if is_english else (2,):
            yield draw_noisy(language, degree)


def _compose(language: Language, count: int, seed: int) -> str:
    """`count` sentences in an order of this seed, so that columns differ."""
    chosen: list[str] = []
    draw = random.Random(f"{language.code} {seed + 100 * language.setting.seed}")
    while len(chosen) < count:
        chosen += draw.sample(language.sentences, len(language.sentences))
    return (" " if language.spaced or language.code == "th" else "").join(chosen[:count])


class Sheet:
    """A page to draw on, in points."""

    def __init__(self, language: Language, width: float = WIDTH, height: float = HEIGHT) -> None:
        self.language, self.truth = language, list[str]()
        self.document = pymupdf.open()
        self.page = self.document.new_page(width=width, height=height)

    def write(self, box: Sequence[float], text: str, size: float, style: str = "") -> float:
        """Write a paragraph, cut to the sentences that fit into the box; returns how far down it reaches."""
        self.truth.append(text.replace("|", ""))
        style = self.language.setting.css + style
        text = text.replace("|", "\u200b")
        direction = "rtl" if self.language.rtl else "ltr"
        css = f"font-size:{size}pt;line-height:{LINE};text-align:justify;margin:0;{style}"
        spare, scale = self.page.insert_htmlbox(box, f'<p dir="{direction}" style="{css}">{text}</p>')
        if scale < 1:
            raise ValueError(f"{text[:30]} does not fit")
        return float(box[3] - spare)

    def add_picture(self, box: Sequence[float], seed: int) -> None:
        """A photograph: clouds of grey."""
        width, height = round(box[2] - box[0]), round(box[3] - box[1])
        grain = np.random.default_rng(seed).integers(0, 255, (height // 12 + 2, width // 12 + 2, 3), np.uint8)
        image = Image.fromarray(grain).resize((2 * width, 2 * height), Image.Resampling.BICUBIC)
        pixmap = pymupdf.Pixmap(pymupdf.csRGB, image.width, image.height, image.tobytes(), False)
        self.page.insert_image(box, pixmap=pixmap)

    def finish(self, kind: str, dpi: int = DPI) -> Scan:
        pixmap = self.page.get_pixmap(dpi=dpi)
        array = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, 3).copy()
        self.document.close()
        return Scan(kind, self.language, array, tuple(self.truth))


def _place_columns(
    language: Language, count: int, left: float, right: float, gutter: float
) -> list[tuple[float, float]]:
    width = (right - left - (count - 1) * gutter) / count
    places = [(left + n * (width + gutter), left + n * (width + gutter) + width) for n in range(count)]
    return places[::-1] if language.rtl else places


def draw_columns(language: Language, count: int) -> Scan:
    """Columns with narrow gutters."""
    sheet, size = Sheet(language), 9.0 * language.setting.scale
    for number, (x0, x1) in enumerate(
        _place_columns(language, count, MARGIN, WIDTH - MARGIN, language.setting.gutter * size)
    ):
        _fill(sheet, (x0, TOP, x1, HEIGHT - TOP), size, seed=number)
    return sheet.finish(f"columns {count}")


def draw_ragged_columns(language: Language, count: int = 5) -> Scan:
    """Columns with narrow gutters and lines of any length, since words are long and none is hyphenated."""
    sheet, size = Sheet(language), 8.0 * language.setting.scale
    for number, (x0, x1) in enumerate(
        _place_columns(language, count, MARGIN, WIDTH - MARGIN, 0.8 * language.setting.gutter * size)
    ):
        _fill(sheet, (x0, TOP, x1, HEIGHT - TOP), size, seed=number, style="text-align:left")
    return sheet.finish(f"ragged columns {count}")


def _fill(sheet: Sheet, box: Sequence[float], size: float, seed: int, style: str = "") -> None:
    """Fill the box with as many sentences as fit surely."""
    language = sheet.language
    width = 1.0 if language.code in ("ko", "zh") else 0.55
    letters = (
        0.8
        * (box[2] - box[0])
        / (width * size)
        * (box[3] - box[1])
        / (LINE * size * (1.3 if language.code == "th" else 1))
    )
    mean = sum(map(len, language.sentences)) / len(language.sentences)
    sheet.write(box, _compose(language, max(int(letters / mean), 1), seed), size, style)


def draw_headed_columns(language: Language) -> Scan:
    """Three columns below a headline, and articles with headings within columns."""
    sheet, size = Sheet(language), 9.0 * language.setting.scale
    sheet.write((MARGIN, TOP, WIDTH - MARGIN, TOP + 30), "Tender for the northern pier closed", 20, "font-weight:bold")
    for number, (x0, x1) in enumerate(
        _place_columns(language, 3, MARGIN, WIDTH - MARGIN, language.setting.gutter * size)
    ):
        middle = 180 + 30 * number
        _fill(sheet, (x0, TOP + 36, x1, middle), size, seed=number)
        sheet.write(
            (x0, middle, x1, middle + 18), ("Lock traffic", "Watch wages", "Ice house")[number], 12, "font-weight:bold"
        )
        _fill(sheet, (x0, middle + 20, x1, HEIGHT - TOP), size, seed=number + 3)
    return sheet.finish("headed columns")


def draw_spread(language: Language) -> Scan:
    """Two pages of two columns each, with the shadow of the fold between them."""
    sheet, size = Sheet(language, 842, HEIGHT), 9.0 * language.setting.scale
    for page in (0, 1):
        left = MARGIN + 421 * page
        for number, (x0, x1) in enumerate(
            _place_columns(language, 2, left, left + 421 - 1.5 * MARGIN, language.setting.gutter * size)
        ):
            _fill(sheet, (x0, TOP, x1, HEIGHT - TOP), size, seed=2 * page + number)
    scan = sheet.finish("spread")
    distance = np.abs(np.arange(scan.pixels.shape[1]) - scan.pixels.shape[1] / 2)
    shadow = np.minimum(0.45 + distance / (20 * SCALE), 1.0)[None, :, None]
    return Scan(scan.kind, language, (scan.pixels * shadow).astype(np.uint8), scan.truth)


def draw_photo(language: Language, straddles: bool = False) -> Scan:
    """Three columns with a photograph in the middle one, or across two of them."""
    sheet, size = Sheet(language), 9.0 * language.setting.scale
    places = _place_columns(language, 3, MARGIN, WIDTH - MARGIN, language.setting.gutter * size)
    photo = (places[1][0], 150, places[2 if straddles else 1][1], 260)
    sheet.add_picture(photo, seed=1)
    for number, (x0, x1) in enumerate(places):
        if photo[0] <= x0 < photo[2]:
            _fill(sheet, (x0, TOP, x1, photo[1] - 6), size, seed=number)
            _fill(sheet, (x0, photo[3] + 6, x1, HEIGHT - TOP), size, seed=number + 3)
        else:
            _fill(sheet, (x0, TOP, x1, HEIGHT - TOP), size, seed=number)
    return sheet.finish("photo across columns" if straddles else "photo in a column")


def draw_strip(language: Language, aspect: float) -> Scan:
    """One line, much wider than high."""
    text, sheet = _compose(language, 1 if aspect < 18 else 2, 1), Sheet(language, 2400, 100)
    sheet.write((20, 20, 2380, 80), text, 14)
    scan = sheet.finish(f"strip {aspect}")
    ink = np.argwhere(scan.pixels.min(axis=2) < 128)
    (top, left), (bottom, right) = ink.min(axis=0), ink.max(axis=0)
    spare = max(round(((right - left) / aspect - (bottom - top)) / 2), 4)
    pixels = scan.pixels[max(top - spare, 0) : bottom + spare, max(left - spare, 0) : right + spare]
    return Scan(scan.kind, language, pixels.copy(), scan.truth)


def draw_thin(language: Language) -> Scan:
    """A page in black and white whose strokes are one pixel wide."""
    sheet = Sheet(language)
    _fill(sheet, (MARGIN, TOP, WIDTH - MARGIN, HEIGHT / 2), 11 * language.setting.scale, seed=0)
    scan = sheet.finish("thin strokes")
    return Scan(scan.kind, language, np.where(scan.pixels < 70, 0, 255).astype(np.uint8), scan.truth)


def draw_noisy(language: Language, degree: int) -> Scan:
    """A paragraph that is grainy, blurred and skewed, in three degrees."""
    sheet = Sheet(language)
    _fill(sheet, (MARGIN + 20, TOP + 20, WIDTH - MARGIN - 20, HEIGHT - 2 * TOP), 11 * language.setting.scale, seed=0)
    scan = sheet.finish(f"noise {degree}")
    return replace(scan, pixels=add_noise(scan.pixels, degree, language.setting.seed))


def add_noise(pixels: Array, degree: int, seed: int) -> Array:
    """The page as a grainy, blurred and skewed scan, in the degrees 1 to 3."""
    image = Image.fromarray(pixels).rotate((0.4, -1.2, 2.5)[degree - 1], Image.Resampling.BICUBIC, fillcolor="white")
    blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(0.4 * degree)), np.float64)
    grain = np.random.default_rng(degree + 100 * seed).normal(-6 * degree, 9 * degree, (*blurred.shape[:2], 1))
    return np.clip(0.92 * blurred + grain, 0, 255).astype(np.uint8)


if __name__ == "__main__":
    main(sys.argv[1:])

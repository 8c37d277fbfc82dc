"""A searchable PDF shows the pages of its source, and MuPDF finds each word at its place."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from PIL import Image, ImageDraw, ImageOps

from twopass.document import Box, Rect, Word, enclose
from twopass.pages import searchable_pdf
from twopass.pages.rendered_page import PagePointer
from twopass.pages.searchable_pdf import PageText, PlacedText, Removal
from twopass.pages.source_files import PageSize, copy_pixels, open_image
from twopass.pages.text_layer import TextLayer
from twopass.pages.word_places import Text

AT = Box(0.2, 0.1, 0.4, 0.13)
# As it is read, and as it is found.
MARKED = {"שָׁלוֹם": "שלום", "كِتَابٌ": "كتاب", "أَحْمَد": "أحمد", "re\u0301sume\u0301": "résumé"}
SCRIPTS = ("Quelle", "naïve", "ﬁnden", "שלום", "العربية", "हिन्दी", "漢字かな", "한국어", "a😀b", "x²", "don’t")


def scan(change: Callable[[pymupdf.Document], object] = lambda pdf: None) -> pymupdf.Document:
    """A page with a picture of text, without text."""
    with pymupdf.open() as drawn:
        page = drawn.new_page(width=400, height=600)
        page.insert_text((80, 75), "Reservoir", fontsize=18)
        picture = page.get_pixmap(dpi=100)
    pdf = pymupdf.open()
    pdf.new_page(width=400, height=600).insert_image((0, 0, 400, 600), pixmap=picture)
    change(pdf)
    return pdf


def write(folder: Path, pdf: pymupdf.Document, *words: Word, **fields: Any) -> pymupdf.Document:
    """Write the words on page 1, as page workers do."""
    source, target = folder / "source.pdf", folder / "target.pdf"
    pdf.save(source, **fields.pop("save", {}))
    placed = {"number": 1, "turn": 0, "skew": 0.0, "removal": Removal.NOTHING, "words": TextLayer.of(words)} | fields
    password = placed.pop("password", None)
    searchable_pdf.write(str(source), str(target), password, None, [PlacedText(**placed)])
    opened = pymupdf.open(target)
    opened.authenticate(password or "")
    return opened


def displayed_words(page: pymupdf.Page) -> list[Word]:
    """Its words as fractions of the displayed page."""
    width, height = page.rect.width, page.rect.height
    turned = {
        0: pymupdf.Matrix(1, 0, 0, 1, 0, 0),
        90: pymupdf.Matrix(0, 1, -1, 0, width, 0),
        180: pymupdf.Matrix(-1, 0, 0, -1, width, height),
        270: pymupdf.Matrix(0, -1, 1, 0, 0, height),
    }[page.rotation]
    words = [(pymupdf.Rect(word[:4]) * turned, word[4]) for word in page.get_text("words")]
    return [Word(Box.of(*rect, width, height), text) for rect, text in words]


def is_at(word: Word, box: Box) -> bool:
    return all(abs(one - other) < 0.01 for one, other in zip(word.box, box, strict=True))


def set_key(name: str, value: str) -> Callable[[pymupdf.Document], object]:
    return lambda pdf: pdf.xref_set_key(pdf[0].xref, name, value)


def share_resources(pdf: pymupdf.Document) -> None:
    """The page inherits its resources."""
    page, parent = pdf[0].xref, int(pdf.xref_get_key(pdf[0].xref, "Parent")[1].split()[0])
    pdf.xref_set_key(parent, "Resources", pdf.xref_get_key(page, "Resources")[1])
    pdf.xref_set_key(page, "Resources", "null")


def leave_state(pdf: pymupdf.Document) -> None:
    """The page's content leaves another coordinate system, and more saved states than it restores."""
    xref = pdf[0].get_contents()[0]
    pdf.update_stream(xref, b"q " + pdf.xref_stream(xref) + b" q 3 0 0 3 50 50 cm")


@pytest.mark.parametrize(
    "change",
    [
        lambda pdf: None,
        *(set_key("Rotate", str(turn)) for turn in (90, 180, 270)),
        set_key("CropBox", "[50 100 300 500]"),
        set_key("CropBox", "[-50 -100 900 900]"),
        set_key("MediaBox", "[-30 -40 370 560]"),
        set_key("UserUnit", "2.5"),
        share_resources,
        leave_state,
    ],
)
def test_a_word_is_where_the_page_shows_it(change: Callable[[pymupdf.Document], object], tmp_path: Path) -> None:
    """Rotated and cropped pages, other units and origins; the page looks as before."""
    with scan(change) as pdf:
        before = copy_pixels(pdf[0].get_pixmap(dpi=50))

        with write(tmp_path, pdf, Word(AT, "Reservoir")) as result:
            (word,) = displayed_words(result[0])
            assert word.text == "Reservoir" and is_at(word, AT)
            assert (copy_pixels(result[0].get_pixmap(dpi=50)) == before).all()


@pytest.mark.parametrize(
    ("turn", "box"),
    [(90, (0.1, 0.6, 0.13, 0.8)), (180, (0.6, 0.87, 0.8, 0.9)), (270, (0.87, 0.2, 0.9, 0.4))],
)
def test_words_of_a_page_that_was_turned(turn: int, box: tuple[float, ...], tmp_path: Path) -> None:
    """Boxes are those of the page as it was read; in the file it lies as before."""
    with scan() as pdf, write(tmp_path, pdf, Word(AT, "Reservoir"), turn=turn) as result:
        (word,) = displayed_words(result[0])
        assert word.text == "Reservoir" and is_at(word, Box(*box))
        assert result[0].rotation == 0


def test_each_script_is_found_in_logical_order(tmp_path: Path) -> None:
    """Right-to-left, complex and large scripts, ligatures and characters beyond 16 bits."""
    words = [Word(AT.move(0, 0.05 * n), text) for n, text in enumerate(SCRIPTS)]

    with scan() as pdf, write(tmp_path, pdf, *words) as result:
        found = [word.text for word in displayed_words(result[0])]

    assert found == list(SCRIPTS)


def test_letters_are_found_without_their_marks(tmp_path: Path) -> None:
    """Points and vowel signs, which take words apart in MuPDF and which few people type; letters stay what they are."""
    words = [Word(AT.move(0, 0.05 * n), text) for n, text in enumerate(MARKED)]

    with scan() as pdf, write(tmp_path, pdf, *words) as result:
        found = [word.text for word in displayed_words(result[0])]
        areas = [[area for area in result[0].search_for(text)] for text in MARKED.values()]

    assert found == list(MARKED.values())
    places = [Box.of(*enclose(Rect(*area) for area in found), 400, 600) for found in areas]
    assert all(is_at(Word(place, ""), word.box) for place, word in zip(places, words, strict=True))


def test_words_of_a_line_are_copied_with_spaces(tmp_path: Path) -> None:
    """However narrow the gaps are, and however different the widths of letters."""
    texts, left = ("I", "am", "incomprehensible", "to", "all"), 0.1
    words = []
    for text in texts:
        words.append(Word(Box(left, 0.1, left + 0.012 * len(text), 0.13), text))
        left += 0.012 * len(text) + 0.003

    with scan() as pdf, write(tmp_path, pdf, *words) as result:
        assert result[0].get_text().strip() == " ".join(texts)


def test_links_outline_and_labels_stay(tmp_path: Path) -> None:
    """Also where an old layer is removed."""
    with scan() as pdf:
        pdf[0].insert_link({"kind": pymupdf.LINK_URI, "from": pymupdf.Rect(80, 50, 200, 80), "uri": "https://a.test"})
        pdf[0].insert_text((80, 75), "0ld layer", render_mode=3)
        pdf.set_toc([[1, "Springs", 1]])

        with write(tmp_path, pdf, Word(AT, "Reservoir"), removal=Removal.INVISIBLE) as result:
            assert [link["uri"] for link in result[0].get_links()] == ["https://a.test"]
            assert result.get_toc() == [[1, "Springs", 1]]
            assert [word.text for word in displayed_words(result[0])] == ["Reservoir"]


def place(path: Path, *texts: Text, **fields: Any) -> PlacedText:
    return searchable_pdf.place(PageText(PagePointer(str(path), 1), texts, **fields))


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("covered", [False, True])
def test_the_old_layer_of_a_scan_goes_if_the_answer_is_another(covered: bool, keeps: bool, tmp_path: Path) -> None:
    """Bad OCR text is not found any more; text that the answer was taken from stays, and nothing is added."""
    with scan() as pdf:
        pdf[0].insert_text((80, 75), "Rescrvolr", fontsize=18, overlay=not covered, render_mode=0 if covered else 3)
        before = copy_pixels(pdf[0].get_pixmap(dpi=50))
        pdf.save(tmp_path / "source.pdf")
    text = Text((Box(0.19, 0.09, 0.42, 0.14),), "Rescrvolr" if keeps else "Reservoir")

    placed = place(tmp_path / "source.pdf", text, keeps_layer=keeps)
    searchable_pdf.write(str(tmp_path / "source.pdf"), str(tmp_path / "target.pdf"), None, None, [placed])

    with pymupdf.open(tmp_path / "target.pdf") as result:
        assert [word.text for word in displayed_words(result[0])] == [text.text]
        assert (copy_pixels(result[0].get_pixmap(dpi=50)) == before).all()


def test_a_page_with_its_own_text_stays(tmp_path: Path) -> None:
    """Its bytes are those of the source; only what it lacks is added."""
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=400, height=600)
        page.insert_text((80, 75), "Reservoir and springs", fontsize=14)
        pdf.save(tmp_path / "source.pdf")
    known = TextLayer.of([Word(Box(0.1, 0.5, 0.3, 0.53), "pictured")])
    texts = (
        Text((Box(0.19, 0.09, 0.7, 0.14),), "Reservoir and springs"),
        Text((Box(0.1, 0.5, 0.3, 0.53),), "pictured"),
    )

    sound = place(tmp_path / "source.pdf", texts[0])
    partly = place(tmp_path / "source.pdf", *texts, known=known)

    assert list(sound.words) == [] and not sound.removal
    assert [word.text for word in partly.words] == ["pictured"]


def test_a_picture_gets_the_words_that_it_lacks(tmp_path: Path) -> None:
    """Also if the page has one of them as text; a formula with own signs gets none, because its text is LaTeX."""
    with pymupdf.open() as drawn:
        page = drawn.new_page(width=400, height=600)
        page.insert_text((80, 105), "Springs", fontsize=14)
        picture = page.get_pixmap(dpi=100)
    with pymupdf.open() as pdf:
        page = pdf.new_page(width=400, height=600)
        page.insert_image((0, 0, 400, 600), pixmap=picture)
        page.draw_rect((60, 50, 380, 85), color=None, fill=(1, 1, 1))
        page.insert_text((80, 75), "Reservoir", fontsize=14)
        pdf.save(tmp_path / "source.pdf")
    box = Box(0.15, 0.08, 0.6, 0.2)

    placed = place(tmp_path / "source.pdf", Text((box,), "Reservoir Springs", is_picture=True), keeps_layer=True)
    formula = place(tmp_path / "source.pdf", Text((box,), r"\frac{a}{b}", is_formula=True), keeps_layer=True)

    assert [word.text for word in placed.words] == ["Springs"] and placed.words[0].box.contains((0.27, 0.165))
    assert list(formula.words) == []


def test_a_skewed_scan(tmp_path: Path) -> None:
    """Words lie along the lines of the scan."""
    lines = ["The reservoir holds nine hundred cubic metres", "and is filled from two springs in the hills"] * 8
    with pymupdf.open() as drawn:
        page = drawn.new_page(width=400, height=600)
        for number, line in enumerate(lines):
            page.insert_text((60, 100 + 20 * number), line, fontsize=13)
        degrees, middle = 3.0, pymupdf.Point(200, 300)
        turn = pymupdf.Matrix(1, 0, 0, 1, -200, -300) * pymupdf.Matrix(degrees) * pymupdf.Matrix(1, 0, 0, 1, 200, 300)
        truth = [(word[4], (pymupdf.Rect(word[:4]).quad * turn).rect) for word in page.get_text("words")]
        picture = page.get_pixmap(dpi=150)
    image = Image.frombytes("RGB", (picture.width, picture.height), picture.samples).rotate(-degrees, fillcolor="white")
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    with pymupdf.open() as pdf:
        pdf.new_page(width=400, height=600).insert_image((0, 0, 400, 600), stream=buffer.getvalue())
        pdf.save(tmp_path / "source.pdf")
    assert middle
    around = pymupdf.Rect(truth[0][1])
    for _, rect in truth:
        around |= rect

    placed = place(tmp_path / "source.pdf", Text((Box.of(*around, 400, 600),), " ".join(lines)))
    searchable_pdf.write(str(tmp_path / "source.pdf"), str(tmp_path / "target.pdf"), None, None, [placed])

    with pymupdf.open(tmp_path / "target.pdf") as result:
        found = [(word[4], pymupdf.Rect(word[:4])) for word in result[0].get_text("words")]
    near = [any(text == one and rect.contains((box.tl + box.br) / 2) for one, box in found) for text, rect in truth]
    assert sum(near) >= 0.95 * len(near)


def test_an_encrypted_source_stays_encrypted(tmp_path: Path) -> None:
    """With its passwords; what is added is not readable without them."""
    protection = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "open", "owner_pw": "own"}

    with scan() as pdf, write(tmp_path, pdf, Word(AT, "Reservoir"), save=protection, password="open") as result:
        assert [word.text for word in displayed_words(result[0])] == ["Reservoir"]
    with pymupdf.open(tmp_path / "target.pdf") as closed:
        assert closed.needs_pass


def test_the_bytes_of_the_source_stay(tmp_path: Path) -> None:
    """Signatures hold for what they cover, and the file grows by the text only."""
    with scan() as pdf, write(tmp_path, pdf, *(Word(AT.move(0, n / 500), f"word{n}") for n in range(300))):
        source, target = (tmp_path / "source.pdf").read_bytes(), (tmp_path / "target.pdf").read_bytes()

    assert target.startswith(source)
    assert len(target) - len(source) < 12_000


def test_a_damaged_source_is_repaired(tmp_path: Path) -> None:
    """A file without a table of its objects cannot grow; it is written anew."""
    with scan() as pdf:
        pdf.save(tmp_path / "whole.pdf")
    damaged = (tmp_path / "whole.pdf").read_bytes().partition(b"startxref")[0]
    (tmp_path / "source.pdf").write_bytes(damaged)
    placed = PlacedText(1, 0, 0.0, Removal.NOTHING, TextLayer.of([Word(AT, "Reservoir")]))

    searchable_pdf.write(str(tmp_path / "source.pdf"), str(tmp_path / "target.pdf"), None, None, [placed])

    with pymupdf.open(tmp_path / "target.pdf") as result:
        assert [word.text for word in displayed_words(result[0])] == ["Reservoir"]


# ---- images ---------------------------------------------------------------------------------------


def picture(mode: str = "RGB") -> Image.Image:
    """A picture that looks different from all sides."""
    image = Image.new("RGB", (120, 80), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((5, 5, 40, 20), fill="black")
    draw.rectangle((80, 50, 110, 75), fill=(200, 30, 30) if mode not in ("1", "L", "LA") else "black")
    return image.convert(mode)


def to_pdf(path: Path, pages: int = 1, *words: Word) -> pymupdf.Document:
    """The PDF of an image file, at a point for each pixel of its upright pages."""
    sizes = []
    with open_image(str(path), 1 << 30) as image:
        for number in range(pages):
            image.seek(number)
            sizes.append(PageSize(*map(float, ImageOps.exif_transpose(image).size)))
    placed = [PlacedText(1, 0, 0.0, Removal.NOTHING, TextLayer.of(words))]
    searchable_pdf.write(str(path), str(path.with_suffix(".pdf")), None, sizes, placed)
    return pymupdf.open(path.with_suffix(".pdf"))


def looks_like(page: pymupdf.Page, image: Image.Image) -> bool:
    shown = copy_pixels(page.get_pixmap()).astype(int)
    return shown.shape == (image.height, image.width, 3) and np.abs(shown - np.asarray(image, int)).mean() < 6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_jpeg_stays_as_it_is(orientation: int, tmp_path: Path) -> None:
    """Its bytes are in the file, and the page shows it upright."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    picture().save(tmp_path / "photo.jpg", exif=exif, quality=95)

    with to_pdf(tmp_path / "photo.jpg", 1, Word(AT, "Reservoir")) as pdf, Image.open(tmp_path / "photo.jpg") as image:
        assert looks_like(pdf[0], ImageOps.exif_transpose(image).convert("RGB"))
        assert is_at(displayed_words(pdf[0])[0], AT)
        assert (tmp_path / "photo.jpg").read_bytes() in (tmp_path / "photo.pdf").read_bytes()


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "I;16"])
@pytest.mark.parametrize("suffix", ["png", "tif", "jpg"])
def test_colours_of_images(mode: str, suffix: str, tmp_path: Path) -> None:
    """Two colours, grey, palettes, transparency on white, CMYK and 16 bits look as they are read."""
    allowed = {
        "png": ("1", "L", "P", "RGBA", "LA", "I;16"),
        "tif": ("1", "L", "P", "RGBA", "CMYK"),
        "jpg": ("L", "CMYK"),
    }
    if mode not in allowed[suffix]:
        pytest.skip("the format has no such mode")
    image = picture("L" if mode == "I;16" else mode)
    image = Image.fromarray(np.asarray(image, np.uint16) * 257) if mode == "I;16" else image
    image.save(tmp_path / f"file.{suffix}")

    with to_pdf(tmp_path / f"file.{suffix}") as pdf:
        plain = picture("1" if mode == "1" else "L" if mode in ("L", "LA", "I;16") else "RGB").convert("RGB")
        assert looks_like(pdf[0], plain)


def test_each_frame_is_a_page(tmp_path: Path) -> None:
    """A fax of two pages stays one of two colours."""
    first, second = picture("1"), ImageOps.flip(picture("1"))
    first.save(tmp_path / "fax.tif", save_all=True, append_images=[second], compression="group4")

    with to_pdf(tmp_path / "fax.tif", pages=2) as pdf:
        assert len(pdf) == 2 and looks_like(pdf[1], second.convert("RGB"))
        assert "CCITTFaxDecode" in pdf.xref_object(pdf[0].get_images()[0][0])

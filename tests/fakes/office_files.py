"""Office files and books as other programs write them, each with the same sentence and table, and hostile ones."""

from __future__ import annotations

import io
import random
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import docx
import openpyxl
import pptx
from docx.enum.style import WD_STYLE_TYPE
from docx.enum.table import WD_ROW_HEIGHT_RULE
from docx.shared import Pt
from openpyxl.styles import Alignment
from PIL import Image
from pptx.util import Inches

SENTENCE = "The first pump was built in 1891 and rebuilt in 1934."
TABLE = (
    ("Pump", "Built in the year", "Litres per day"),
    ("North of the old water works", "1891", "1234567890.25"),
    ("South", "1934", "88000"),
)
ENCRYPTED = Path(__file__).parent / "files"  # those with the password "open"
MACRO = ENCRYPTED / "macro.odt"  # by LibreOffice: opened, it writes the file that the variable WITNESS names
_LINKED_FORMULA = '<f>WEBSERVICE("http://127.0.0.1:9/")</f><v>4711</v>'
_IMAGE_RELATION = 'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/image"'


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("Annual report", 1)
    document.add_paragraph(SENTENCE)
    table = document.add_table(rows=len(TABLE), cols=len(TABLE[0]))
    table.style = "Table Grid"
    for row, texts in zip(table.rows, TABLE, strict=True):
        for cell, text in zip(row.cells, texts, strict=True):
            cell.text = text
    return _save(document.save)


def make_docx_formula() -> bytes:
    """A docx with the fraction 4711/815 between the text and the end."""
    space = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
    texts = {"num": 4711, "den": 815}
    parts = "".join(f"<m:{part}><m:r><m:t>{text}</m:t></m:r></m:{part}>" for part, text in texts.items())
    formula = f"<w:p><m:oMath {space}><m:f>{parts}</m:f></m:oMath></w:p><w:sectPr"
    return repack(make_docx(), {"word/document.xml": lambda text: text.replace("<w:sectPr", formula, 1)})


def make_odt_formula() -> bytes:
    """The same fraction in an odt, as an object of its own in the text."""
    formula = "<math xmlns='http://www.w3.org/1998/Math/MathML'><mfrac><mn>4711</mn><mn>815</mn></mfrac></math>"
    frame = f"<draw:frame svg:width='3cm' svg:height='1cm'><draw:object>{formula}</draw:object></draw:frame>"
    return make_odf("text", f"<text:p>{SENTENCE}</text:p><text:p>{frame}</text:p>")


def make_rtf_formula() -> bytes:
    return make_rtf(r"{\mmath{\*\moMath{\mf{\mnum{\mr 4711}}{\mden{\mr 815}}}}}")


def make_unseen_docx() -> bytes:
    """A docx with the word `unseen` in a style that hides it, and `cut` in the last line of a row that is too low."""
    document = docx.Document()
    document.add_paragraph(SENTENCE)
    document.styles.add_style("Secret", WD_STYLE_TYPE.PARAGRAPH).font.hidden = True
    document.add_paragraph("unseen", style="Secret")
    (row,) = document.add_table(1, 1).rows
    row.height, row.height_rule = Pt(14), WD_ROW_HEIGHT_RULE.EXACTLY
    row.cells[0].text = "row\n\n\ncut"
    return _save(document.save)


def make_unseen_pptx() -> bytes:
    """Slides with the word `unseen` in a hidden shape, and `cut` beside the slide."""
    deck = pptx.Presentation()
    shapes = deck.slides.add_slide(deck.slide_layouts[5]).shapes
    shapes.title.text = SENTENCE
    for text, left in (("unseen", 1), ("cut", -5)):
        shapes.add_textbox(Inches(left), Inches(3), Inches(2), Inches(1)).text_frame.text = text
    shapes[1].element.nvSpPr.cNvPr.set("hidden", "1")
    return _save(deck.save)


def make_unseen_epub() -> bytes:
    hidden = "<p style='display: none'>unseen</p><p style='visibility: hidden'>cut</p>"
    return make_book(f"<p>{SENTENCE}</p>{hidden}")


def make_pictures(count: int, side: int) -> bytes:
    """A docx with pictures of noise, which cannot be compressed."""
    document, noise = docx.Document(), random.Random(0)
    for _ in range(count):
        picture = io.BytesIO()
        Image.frombytes("RGB", (side, side), noise.randbytes(3 * side * side)).save(picture, "PNG")
        document.add_picture(picture)
    return _save(document.save)


def make_xlsx() -> bytes:
    book = openpyxl.Workbook()
    for row in TABLE:
        book.active.append([float(text) if text.replace(".", "").isdigit() else text for text in row])
    book.create_sheet("Notes")["A1"] = SENTENCE
    book.active.print_area = "A1:B2"  # which says what to print, not what the sheet holds
    return _save(book.save)


def make_hidden_sheet() -> bytes:
    book = openpyxl.Workbook()
    book.active["A1"] = SENTENCE
    book.create_sheet("Notes").sheet_state = "hidden"
    return _save(book.save)


def make_formulas() -> bytes:
    """A workbook with two formulas: one whose value is stored and whose file is elsewhere, and one without a value."""
    book = openpyxl.Workbook()
    for value in ("=A2+1", 41, "=A2+2"):
        book.active.append([value])
    link = {"xl/worksheets/sheet1.xml": lambda text: re.sub(r"<f>A2\+1</f><v ?/?>(</v>)?", _LINKED_FORMULA, text)}
    return repack(_save(book.save), link)


def make_long_cells(words: Sequence[str]) -> bytes:
    """A workbook with all words in one cell beside another, and five in the lines of a cell of a low row."""
    book = openpyxl.Workbook()
    book.active.append([" ".join(words), "beside"])
    book.active.append(["\n".join(words[:5]), "beside"])
    book.active["A2"].alignment = Alignment(wrap_text=True)
    book.active.row_dimensions[2].height = 15
    return _save(book.save)


def make_pptx() -> bytes:
    deck = pptx.Presentation()
    slide = deck.slides.add_slide(deck.slide_layouts[5])
    slide.shapes.title.text = "Annual report"
    text = slide.shapes.add_textbox(Inches(1), Inches(1.6), Inches(8), Inches(0.5))
    text.text_frame.text = SENTENCE
    frame = slide.shapes.add_table(len(TABLE), len(TABLE[0]), Inches(1), Inches(2.5), Inches(8), Inches(2))
    for row, texts in zip(frame.table.rows, TABLE, strict=True):
        for cell, value in zip(row.cells, texts, strict=True):
            cell.text = value
    return _save(deck.save)


def make_odf(kind: str, body: str = "") -> bytes:
    """A `text`, `spreadsheet` or `presentation` with the sentence, or with another body."""
    paragraph = f"<text:p>{SENTENCE}</text:p>"
    bodies = {
        "text": paragraph,
        "spreadsheet": f"<table:table><table:table-row><table:table-cell office:value-type='string'>{paragraph}"
        "</table:table-cell></table:table-row></table:table>",
        "presentation": "<draw:page><draw:frame svg:x='2cm' svg:y='2cm' svg:width='20cm' svg:height='4cm'>"
        f"<draw:text-box>{paragraph}</draw:text-box></draw:frame></draw:page>",
    }
    names = {
        name: f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0" for name in ("office", "text", "table", "manifest")
    }
    names |= {"draw": "urn:oasis:names:tc:opendocument:xmlns:drawing:1.0", "xlink": "http://www.w3.org/1999/xlink"}
    names |= {"svg": "urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0"}
    spaces = " ".join(f'xmlns:{name}="{uri}"' for name, uri in names.items())
    mime = f"application/vnd.oasis.opendocument.{kind}"
    entry = '<manifest:file-entry manifest:full-path="{}" manifest:media-type="{}"/>'
    parts = {
        "mimetype": mime,
        "META-INF/manifest.xml": f"<manifest:manifest {spaces}>{entry.format('/', mime)}"
        f"{entry.format('content.xml', 'text/xml')}</manifest:manifest>",
        "content.xml": f'<office:document-content {spaces} office:version="1.2"><office:body><office:{kind}>'
        f"{body or bodies[kind]}</office:{kind}></office:body></office:document-content>",
    }
    return pack(parts)


def make_macro(kind: str) -> bytes:
    """An odt, or an ods with the same macro."""
    if kind == "odt":
        return MACRO.read_bytes()
    cell = f"<table:table-cell><text:p>{SENTENCE}</text:p></table:table-cell>"
    sheet = f"<table:table table:name='a'><table:table-row>{cell}</table:table-row></table:table>"
    body = f"<office:body><office:spreadsheet>{sheet}</office:spreadsheet></office:body>"

    def retype(text: str) -> str:
        return text.replace("opendocument.text", "opendocument.spreadsheet")

    return repack(
        MACRO.read_bytes(),
        {
            "mimetype": retype,
            "META-INF/manifest.xml": retype,
            "content.xml": lambda text: re.sub("<office:body>.*</office:body>", body, text, flags=re.DOTALL),
        },
    )


def make_epub(encrypted: bool = False, more: Mapping[str, str] = MappingProxyType({}), lacks: str = "") -> bytes:
    container = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles><rootfile '
    page = f"<html xmlns='http://www.w3.org/1999/xhtml'><body><h1>One</h1><p>{SENTENCE}</p></body></html>"
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": f'{container}full-path="book.opf" '
        'media-type="application/oebps-package+xml"/></rootfiles></container>',
        "book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Pumps</dc:title></metadata><manifest><item id="a" '
        'href="a.xhtml" media-type="application/xhtml+xml"/></manifest><spine><itemref idref="a"/></spine></package>',
        "a.xhtml": page,
    }
    parts = {**parts, **({"META-INF/rights.xml": "<rights/>"} if encrypted else {}), **more}
    return pack({name: part for name, part in parts.items() if name != lacks})


def make_book(*bodies: str) -> bytes:
    """A book with a chapter of each body, named in its contents."""
    names = [f"{number}.xhtml" for number in range(1, len(bodies) + 1)]
    items = "".join(f'<item id="{name}" href="{name}" media-type="application/xhtml+xml"/>' for name in names)
    items += '<item id="toc" href="toc.ncx" media-type="application/x-dtbncx+xml"/>'
    spine = "".join(f'<itemref idref="{name}"/>' for name in names)
    points = "".join(
        f'<navPoint><navLabel><text>chapter {name[0]}</text></navLabel><content src="{name}"/></navPoint>'
        for name in names
    )
    opf = f"<metadata/><manifest>{items}</manifest><spine toc='toc'>{spine}</spine></package>"
    parts = {
        "book.opf": f'<package xmlns="http://www.idpf.org/2007/opf" version="2.0">{opf}',
        "toc.ncx": f'<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap>{points}</navMap></ncx>',
    }
    page = "<html xmlns='http://www.w3.org/1999/xhtml'><body>{}</body></html>"
    return make_epub(more=parts | {name: page.format(body) for name, body in zip(names, bodies, strict=True)})


def list_encrypted(part: str) -> str:
    """META-INF/encryption.xml of a book of which one part is encrypted."""
    reference = f'<CipherData><CipherReference URI="{part}"/></CipherData>'
    container = "urn:oasis:names:tc:opendocument:xmlns:container"
    encrypted = f'<EncryptedData xmlns="http://www.w3.org/2001/04/xmlenc#">{reference}</EncryptedData>'
    return f'<encryption xmlns="{container}">{encrypted}</encryption>'


def make_html(body: str = "") -> bytes:
    return f"<!DOCTYPE html><html><body><p>{SENTENCE} Größe</p>{body}</body></html>".encode()


def make_rtf(body: str = "") -> bytes:
    return rf"{{\rtf1\ansi\deff0{{\fonttbl{{\f0 Arial;}}}}\f0 {SENTENCE}\par {body}}}".encode()


MAKERS: dict[str, Callable[[], bytes]] = {
    "docx": make_docx,
    "pptx": make_pptx,
    "xlsx": make_xlsx,
    "odt": lambda: make_odf("text"),
    "odp": lambda: make_odf("presentation"),
    "ods": lambda: make_odf("spreadsheet"),
    "rtf": make_rtf,
    "html": make_html,
    "epub": make_epub,
}
FORMULAS = {"docx": make_docx_formula, "odt": make_odt_formula, "rtf": make_rtf_formula}
UNSEEN = {"docx": make_unseen_docx, "pptx": make_unseen_pptx, "epub": make_unseen_epub}
PACKAGES = ("docx", "pptx", "xlsx", "odt", "odp", "ods", "epub")  # those that are ZIP archives


def link_image(data: bytes, address: str) -> bytes:
    """The docx with a picture that lies elsewhere."""
    relation = f'<Relationship Id="rId99" {_IMAGE_RELATION} Target="{address}" TargetMode="External"/>'
    drawing = (
        '<w:p><w:r><w:drawing><wp:inline xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing">'
        '<wp:extent cx="914400" cy="914400"/><wp:docPr id="9" name="a"/><a:graphic xmlns:a="'
        'http://schemas.openxmlformats.org/drawingml/2006/main"><a:graphicData uri="'
        'http://schemas.openxmlformats.org/drawingml/2006/picture"><pic:pic xmlns:pic="'
        'http://schemas.openxmlformats.org/drawingml/2006/picture"><pic:nvPicPr><pic:cNvPr id="9" name="a"/>'
        "<pic:cNvPicPr/>"
        '</pic:nvPicPr><pic:blipFill><a:blip r:link="rId99" xmlns:r="'
        'http://schemas.openxmlformats.org/officeDocument/2006/relationships"/><a:stretch><a:fillRect/></a:stretch>'
        '</pic:blipFill><pic:spPr><a:xfrm><a:off x="0" y="0"/><a:ext cx="914400" cy="914400"/></a:xfrm>'
        '<a:prstGeom prst="rect"/></pic:spPr></pic:pic></a:graphicData></a:graphic></wp:inline>'
        "</w:drawing></w:r></w:p><w:sectPr"
    )
    return repack(
        data,
        {
            "word/_rels/document.xml.rels": lambda text: text.replace(
                "</Relationships>", f"{relation}</Relationships>"
            ),
            "word/document.xml": lambda text: text.replace("<w:sectPr", drawing, 1),
        },
    )


def declare_size(data: bytes, size: int) -> bytes:
    """The archive whose directory says that its first part has so many bytes unpacked."""
    start = data.index(b"PK\x01\x02") + 24
    return data[:start] + struct.pack("<I", size) + data[start + 4 :]


def nest(data: bytes, depth: int) -> bytes:
    """The archive with a part of XML whose elements lie so deep in each other."""
    output = io.BytesIO(data)
    with zipfile.ZipFile(output, "a") as package:
        package.writestr("deep.xml", "<a>" * depth + "</a>" * depth)
    return output.getvalue()


def add_entities(data: bytes) -> bytes:
    """The archive with a part of XML whose entities expand to ten billion characters."""
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 10))
    output = io.BytesIO(data)
    with zipfile.ZipFile(output, "a") as package:
        package.writestr("bomb.xml", f'<!DOCTYPE a [<!ENTITY e0 "{"x" * 10}">{entities}]><a>&e9;</a>')
    return output.getvalue()


def add_parts(data: bytes, added: Mapping[str, str]) -> bytes:
    """The archive with more parts, or with other ones of the same names."""
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        parts: dict[str, str | bytes] = {name: package.read(name) for name in package.namelist()}
    return pack(parts | added)


def repack(data: bytes, changes: Mapping[str, Callable[[str], str]]) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as package:
        parts = {name: package.read(name) for name in package.namelist()}
    return pack({name: changes[name](text.decode()) if name in changes else text for name, text in parts.items()})


def pack(parts: Mapping[str, str | bytes]) -> bytes:
    """A ZIP archive; its first part is not compressed, as ODF and EPUB demand of their type."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as package:
        for number, (name, data) in enumerate(parts.items()):
            package.writestr(name, data, zipfile.ZIP_DEFLATED if number else zipfile.ZIP_STORED)
    return output.getvalue()


def _save(save: Callable[[io.BytesIO], object]) -> bytes:
    output = io.BytesIO()
    save(output)
    return output.getvalue()

"""The flags of elements and pages: all that is known about each stands in its row."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twopass.errors import Code


class _Warning(NamedTuple):
    """The problem that a page has because of a flag."""

    code: Code
    message: str


class _Row(NamedTuple):
    name: str
    sentence: str
    informs: bool = False
    is_of_page: bool = False
    is_doubt: bool = False
    warning: _Warning | None = None


class Flag(StrEnum):
    """What is unusual or doubtful about how an element or a page was read.

    `sentence` explains it to readers. `informs`: it says how something was read, not that it was read badly.
    `is_of_page`: all elements of the page have it, so that it is explained once and the page is in doubt instead of
    each element. `is_doubt`: it is a sign of a bad reading, for which pass 2 reads the element again.
    """

    sentence: str
    informs: bool
    is_of_page: bool
    is_doubt: bool
    warning: _Warning | None

    # The page
    DENSE_PAGE = _Row(
        "dense_page",
        "The page has too many lines or drawings for the layout model. Columns may be mixed.",
        is_of_page=True,
        warning=_Warning(
            Code.DENSE_PAGE,
            "too many lines or drawings for the layout model, or it took too long; split into blocks, columns may be "
            "mixed",
        ),
    )
    LACKS_LINES = _Row(
        "lacks_lines",
        "Some lines that only the page's pixels show were left out, because OCR is not sure of them.",
        is_of_page=True,
        warning=_Warning(
            Code.UNREADABLE_SCRIPT,
            "some lines that only its pixels show were left out, because OCR is not sure of them; if they are small or "
            "blurred, raise dpi; if they are in a script other than Latin, Chinese or Japanese, install its language "
            "file of Tesseract or set TESSDATA_DIR",
        ),
    )
    LACKS_ANNOTATIONS = _Row(
        "lacks_annotations",
        "Annotations and form fields of the page are damaged or take too long, and were left out.",
        is_of_page=True,
        warning=_Warning(
            Code.PARTS_OMITTED,
            "annotations and form fields left out, because they are damaged or take too long",
        ),
    )
    HIDDEN_LAYER = _Row(
        "hidden_layer",
        "Invisible text of a scan, which another program recognized.",
        informs=True,
        is_of_page=True,
    )
    PICTURE_PAGE = _Row(
        "picture_page",
        "No text was found on the page. It is kept as one picture.",
        informs=True,
        is_of_page=True,
        warning=_Warning(
            Code.NO_TEXT, "no text was found, and the page is kept as one picture; if it shows text, raise dpi"
        ),
    )
    DEGENERATE_REGIONS = _Row(
        "degenerate_regions",
        "Regions without an area were dropped.",
        is_of_page=True,
        warning=_Warning(
            Code.REGIONS_DROPPED,
            "the layout detector gave regions without an area, which were dropped; check that no text is missing",
        ),
    )
    ORDER_CORRECTED = _Row(
        "order_corrected",
        "The layout detector's order contradicted the columns of the page and was corrected.",
        is_of_page=True,
        warning=_Warning(
            Code.ORDER_CORRECTED,
            "the layout detector's order contradicted the columns and was corrected; check the order",
        ),
    )
    TEXT_LAYER = _Row(
        "text_layer",
        "No answer could be used. The PDF's own text is shown, without tables and headings.",
        is_of_page=True,
    )

    # Where an element's text comes from
    HIDDEN_TEXT = _Row("hidden_text", "The file has this text here, and nobody can see it on the page.")
    NO_INK = _Row("no_ink", "The page shows nothing here. The text may be invented.")
    NOT_DRAWN = _Row("not_drawn", "The page does not show this text: its font is damaged.")
    BROKEN_FONT = _Row(
        "broken_font",
        "A font names characters wrongly or not at all. They were read from the pixels.",
        informs=True,
    )
    IMAGE_TEXT = _Row(
        "image_text",
        "The PDF's own text lacks this. It was read from an image on the page.",
        informs=True,
    )
    LAYER_TEXT = _Row(
        "layer_text",
        "The text is the PDF's own, as the settings ask. The model did not read it.",
        informs=True,
    )
    FROM_TEXT_LAYER = _Row("from_text_layer", "The model did not read this region. The PDF's own text is shown.")
    MISSED_BY_DETECTOR = _Row(
        "missed_by_detector",
        "The layout detector missed this. It was found in the PDF's own text or as ink.",
    )
    MISSED = _Row(
        "missed",
        "The first reading missed this text. It was found on the page. Its place in the reading order is a guess.",
    )
    ORPHAN = _Row("orphan", "The layout model missed this text. Its place in the reading order is a guess.")
    UNREAD_REGION = _Row("unread_region", "The text of this region was not read.")

    # Its place and role on the page
    APART = _Row(
        "apart",
        "A header, footer or logo by its label, but kept in the body: fewer than three pages repeat it.",
        informs=True,
    )
    IN_MARGIN = _Row(
        "in_margin",
        "A header, footer, page number or note in the margin, by label and place.",
        informs=True,
    )
    UNTAGGED = _Row("untagged", "The model gave neither label nor position.", informs=True)
    NO_BOX = _Row("no_box", "The model gave no position.")
    DEGENERATE_BOX = _Row("degenerate_box", "Its box has no area: its position is unknown.", is_doubt=True)
    UNREAD_BOX = _Row("unread_box", "Its position was not read completely.", is_doubt=True)

    # How sound its text is
    DOUBTFUL = _Row("doubtful", "The first reading shows signs of mistakes.")
    UNCERTAIN = _Row("uncertain", "It is probably wrong in places: words, their order, or their structure.")
    MIXED_COLUMNS = _Row("mixed_columns", "Its lines probably run across columns, so that their order is wrong.")
    UNREADABLE = _Row(
        "unreadable",
        "The text does not match what the page shows, or makes no sense.",
        warning=_Warning(
            Code.UNREADABLE_TEXT,
            "its text does not match what the page shows; it is kept and marked as unreadable",
        ),
    )
    NO_TEXT = _Row("no_text", "No text was read here.", is_doubt=True)
    NOT_IN_TEXT_LAYER = _Row("not_in_text_layer", "Many of these words are not in the PDF's own text.", is_doubt=True)
    MIXED_SCRIPTS = _Row(
        "mixed_scripts",
        "A word mixes Latin with Greek or Cyrillic letters. Letters may have been confused.",
        is_doubt=True,
    )
    REPLACEMENT_CHARACTERS = _Row(
        "replacement_characters",
        "Some characters could not be read. They are shown as \ufffd.",
        is_doubt=True,
    )
    REPEATS = _Row(
        "repeats",
        "The same words were read at even distances. Some may not be on the page.",
    )
    HEADING_REPEATED = _Row(
        "heading_repeated",
        "The answer repeated the heading above here. The repetition was removed.",
        informs=True,
    )

    # How the answer about it ended, or was parsed
    CUT_OFF = _Row("cut_off", "The answer was cut off here. Text may be missing.", is_doubt=True)
    LOOP = _Row(
        "loop",
        "The answer repeated itself here. The repetition was removed, and text may be missing.",
        is_doubt=True,
    )
    REPETITION_CUT = _Row("repetition_cut", "The answer repeated itself here. The repetition was cut.")
    REPEATS_LIMITED = _Row(
        "repeats_limited",
        "A later attempt allowed fewer repetitions in this table. Equal cells or rows may be wrong.",
    )
    NOT_A_TABLE = _Row("not_a_table", "The answer is no table and is shown as text.")
    UNPARSED = _Row("unparsed", "The answer has an unexpected form and is shown as it is.")

    # Pass 2
    PASS2_CUT = _Row("pass2_cut", "The second reading was cut off and is not used.")
    PASS2_DISAGREES = _Row("pass2_disagrees", "The two readings of this element differ.")
    PASS2_EMPTY = _Row("pass2_empty", "The second reading found nothing and is not used.")
    PASS2_LOOP = _Row("pass2_loop", "The second reading repeated itself and is not used.")
    PASS2_UNPARSED = _Row("pass2_unparsed", "The second reading has an unexpected form and is not used.")
    UNASKED = _Row("unasked", "The stored answers lack a second reading of this element.")

    # What the model left out of its analysis
    DERIVED_AXES = _Row("derived_axes", "The axes were taken from the titles of the data's columns.", informs=True)
    DERIVED_KEYWORDS = _Row(
        "derived_keywords",
        "The keywords were taken from the text, because the model gave none.",
        informs=True,
    )
    DERIVED_LEGEND = _Row("derived_legend", "The legend was taken from the titles of the data's columns.", informs=True)
    DERIVED_SUMMARY = _Row(
        "derived_summary",
        "The summary was taken from the text, because the model gave none.",
        informs=True,
    )
    DERIVED_TRENDS = _Row("derived_trends", "The trends were calculated from the data.", informs=True)

    def __new__(cls, *row: object) -> Flag:
        return cls._create(_Row(*row))  # type: ignore[arg-type]  # the enum unpacks the row

    @classmethod
    def _create(cls, row: _Row) -> Flag:
        flag = str.__new__(cls, row.name)
        flag._value_ = row.name
        _, flag.sentence, flag.informs, flag.is_of_page, flag.is_doubt, flag.warning = row
        return flag

    @classmethod
    def _missing_(cls, value: object) -> Flag | None:
        """A flag of a later version, whose documents are read, too: its name is all that is known about it."""
        if not isinstance(value, str):
            return None
        flag = cls._create(_Row(value, sentence=value))
        flag._name_ = value
        return flag

"""What an element can be: its kind, category and layer."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """The seven categories of the product."""

    TEXT_HEADER = "text_header"
    TEXT_SECTION = "text_section"
    TEXT_PARAGRAPH = "text_paragraph"
    TABLE = "table"
    GRAPH = "graph"
    DIAGRAM = "diagram"
    COMPLEX_IMAGE = "complex_image"


class Kind(StrEnum):
    """What an element is, by docling's labels."""

    TITLE = "title"
    SECTION_HEADER = "section_header"
    TEXT = "text"
    LIST_ITEM = "list_item"
    CAPTION = "caption"
    FOOTNOTE = "footnote"
    PAGE_HEADER = "page_header"
    PAGE_FOOTER = "page_footer"
    TABLE = "table"
    PICTURE = "picture"
    CHART = "chart"
    FORMULA = "formula"
    CODE = "code"

    @property
    def category(self) -> Category:
        return _CATEGORIES.get(self, Category.TEXT_PARAGRAPH)


_CATEGORIES = {
    Kind.TITLE: Category.TEXT_HEADER,
    Kind.SECTION_HEADER: Category.TEXT_SECTION,
    Kind.TABLE: Category.TABLE,
    Kind.CHART: Category.GRAPH,
    Kind.PICTURE: Category.COMPLEX_IMAGE,  # unless pass 2 finds a diagram
}
HEADINGS = frozenset({Kind.TITLE, Kind.SECTION_HEADER})
FIGURES = frozenset({Kind.PICTURE, Kind.CHART})
FURNITURE = frozenset({Kind.PAGE_HEADER, Kind.PAGE_FOOTER})


class Layer(StrEnum):
    """Body is the document's own content; furniture is what pages repeat, such as headers and footers."""

    BODY = "body"
    FURNITURE = "furniture"

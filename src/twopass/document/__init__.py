"""DocJSON's values: a document, its pages and elements, frozen, with DocJSON's field names.

Import them from here. Knows nothing of engines or files.
"""

from twopass.document.base import Value
from twopass.document.box import BOX_DECIMALS, Box, Word
from twopass.document.document import SCHEMA, Document, Meta, OutlineEntry, Run, Section, SourceInfo, derive_status
from twopass.document.element import (
    Analysis,
    Axis,
    Cell,
    Component,
    Confidence,
    ConfidenceMethod,
    Connection,
    Element,
    Figure,
    Formula,
    Source,
    Span,
    Table,
    make_element_id,
)
from twopass.document.flags import Flag
from twopass.document.kinds import FIGURES, FURNITURE, HEADINGS, Category, Kind, Layer
from twopass.document.page import (
    Attempt,
    Canary,
    Checkpoint,
    Link,
    Page,
    PageImage,
    RawCompletion,
    SourceVersion,
    derive_canary,
)
from twopass.document.status import LOST_STATES, TRANSIENT_CODES, Problem, Severity, State, Status

__all__ = [
    "Analysis",
    "Attempt",
    "Axis",
    "BOX_DECIMALS",
    "Box",
    "Canary",
    "Category",
    "Cell",
    "Checkpoint",
    "Component",
    "Confidence",
    "ConfidenceMethod",
    "Connection",
    "Document",
    "Element",
    "FIGURES",
    "FURNITURE",
    "Figure",
    "Flag",
    "Formula",
    "HEADINGS",
    "Kind",
    "LOST_STATES",
    "Layer",
    "Link",
    "Meta",
    "OutlineEntry",
    "Page",
    "PageImage",
    "Problem",
    "RawCompletion",
    "Run",
    "SCHEMA",
    "Section",
    "Severity",
    "Source",
    "SourceInfo",
    "SourceVersion",
    "Span",
    "State",
    "Status",
    "TRANSIENT_CODES",
    "Table",
    "Value",
    "Word",
    "derive_canary",
    "derive_status",
    "make_element_id",
]

"""What formats for readers show of text that nobody can see on the page: nothing, unless the option says otherwise."""

from __future__ import annotations

from twopass.document import Document, Element, Flag, Layer
from twopass.format_options import HiddenText
from twopass.text import prose

_MARK = "[Hidden text, which nobody can see on the page: {}]"  # in the text, so that each part of it is marked


def show(document: Document, option: HiddenText) -> Document:
    """The document as these formats have it: with or without its hidden elements. Only marked ones keep their flag."""
    if not any(element.is_hidden for element in document.elements):
        return document
    shown = (_reveal(element, option) for element in document.elements)
    return document.model_copy(update={"elements": tuple(element for element in shown if not element.is_hidden)})


def _reveal(element: Element, option: HiddenText) -> Element:
    if not element.is_hidden or option is HiddenText.OMIT:
        return element
    body = element.model_copy(update={"content_layer": Layer.BODY})
    if option is HiddenText.KEEP:
        return body.without_flag(Flag.HIDDEN_TEXT)
    text = _MARK.format(prose.to_one_line(element.text))
    return body.model_copy(update={"text": text, "markdown": text})

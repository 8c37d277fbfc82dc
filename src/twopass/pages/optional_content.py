"""Layers of a PDF that are switched off: expressions that MuPDF does not evaluate, and the words in such layers.

MuPDF hides what a list of layers hides, but draws what an expression of them (/VE) hides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MAX_OBJECTS = 20_000  # of a file with layers, that are searched for expressions: 0.2 s
_MAX_DEPTH = 20  # of an expression, and of the dictionaries around it


def has_layers(pdf: Any) -> bool:
    return bool(pdf.xref_get_key(pdf.pdf_catalog(), "OCProperties")[0] != "null")


def reveal_all(pdf: Any) -> None:
    """Make all layers visible; the pages must not have been used before."""
    pdf.xref_set_key(pdf.pdf_catalog(), "OCProperties", "null")


def apply_expressions(pdf: Any) -> None:
    """Replace each expression of layers by a list of layers that is visible when the expression is."""
    if not has_layers(pdf):
        return
    import pymupdf

    mupdf = pymupdf.mupdf
    states = {xref: bool(layer["on"]) for xref, layer in pdf.get_ocgs().items()}
    for xref in range(1, min(pdf.xref_length(), _MAX_OBJECTS)):
        if "/VE" not in pdf.xref_object(xref, compressed=True):
            continue
        found = mupdf.pdf_load_object(pymupdf._as_pdf_document(pdf), xref)
        for membership in _find_memberships(mupdf, found):
            _replace_expression(mupdf, membership, states)


def _find_memberships(mupdf: Any, found: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the dictionaries with an expression in an object, but not in those that it refers to."""
    if depth > _MAX_DEPTH or (depth and mupdf.pdf_is_indirect(found)):
        return
    if mupdf.pdf_is_dict(found):
        if mupdf.pdf_is_array(mupdf.pdf_dict_gets(found, "VE")):
            yield found
        for n in range(mupdf.pdf_dict_len(found)):
            yield from _find_memberships(mupdf, mupdf.pdf_dict_get_val(found, n), depth + 1)
    elif mupdf.pdf_is_array(found):
        for n in range(mupdf.pdf_array_len(found)):
            yield from _find_memberships(mupdf, mupdf.pdf_array_get(found, n), depth + 1)


def _replace_expression(mupdf: Any, membership: Any, states: Mapping[int, bool]) -> None:
    expression = mupdf.pdf_dict_gets(membership, "VE")
    layers = dict(_list_layers(mupdf, expression))
    if not layers:
        return
    is_visible = _evaluate(mupdf, expression, states)
    layer = next(iter(layers))
    is_on = states.get(layer, True)
    own = mupdf.pdf_new_array(mupdf.pdf_get_bound_document(membership), 1)
    mupdf.pdf_array_push(own, layers[layer])
    mupdf.pdf_dict_puts(membership, "OCGs", own)
    mupdf.pdf_dict_puts(membership, "P", mupdf.pdf_new_name("AllOn" if is_visible == is_on else "AllOff"))
    mupdf.pdf_dict_dels(membership, "VE")  # MuPDF draws everything that has one


def _list_layers(mupdf: Any, expression: Any, depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield the layers of an expression, by the numbers of their objects."""
    for n in range(1, mupdf.pdf_array_len(expression) if depth < _MAX_DEPTH else 0):
        operand = mupdf.pdf_array_get(expression, n)
        if mupdf.pdf_is_array(operand):
            yield from _list_layers(mupdf, operand, depth + 1)
        elif number := mupdf.pdf_to_num(operand):
            yield number, operand


def _evaluate(mupdf: Any, operand: Any, states: Mapping[int, bool], depth: int = 0) -> bool:
    """Whether what has this expression is visible; one that makes no sense hides nothing."""
    if not mupdf.pdf_is_array(operand):
        return states.get(mupdf.pdf_to_num(operand), True)
    if depth >= _MAX_DEPTH:
        return True
    parts = (mupdf.pdf_array_get(operand, n) for n in range(1, mupdf.pdf_array_len(operand)))
    values = [_evaluate(mupdf, part, states, depth + 1) for part in parts]
    match mupdf.pdf_to_name(mupdf.pdf_array_get(operand, 0)):
        case "Not":
            return not all(values)
        case "Or":
            return any(values)
        case _:
            return all(values)

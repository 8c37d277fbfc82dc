"""Layers of a PDF that are switched off: what depends on several of them, and the words in such layers.

MuPDF hides what a layer hides, but draws what an expression of layers (/VE) hides, and is wrong about lists of layers
of which all must be on (/AllOn) or one off (/AnyOff).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

_MAX_OBJECTS = 20_000  # of a file with layers, that are searched for expressions: 0.2 s
_MAX_DEPTH = 20  # of an expression, and of the dictionaries around it

_Policy = Callable[[Iterable[bool]], bool]
# What a list of layers asks of them, from whether each is on; any may be on without a policy.
_POLICIES: Mapping[str, _Policy] = MappingProxyType(
    {
        "AllOn": all,
        "AnyOn": any,
        "AllOff": lambda states: not any(states),
        "AnyOff": lambda states: not all(states),
    }
)


def has_layers(pdf: Any) -> bool:
    return bool(pdf.xref_get_key(pdf.pdf_catalog(), "OCProperties")[0] != "null")


def reveal_all(pdf: Any) -> None:
    """Make all layers visible; the pages must not have been used before."""
    pdf.xref_set_key(pdf.pdf_catalog(), "OCProperties", "null")


def apply_expressions(pdf: Any) -> None:
    """Replace each expression and list of layers by one layer whose content is visible when theirs is."""
    if not has_layers(pdf):
        return
    import pymupdf

    mupdf = pymupdf.mupdf
    document = pymupdf._as_pdf_document(pdf)
    states = _read_states(mupdf, document)
    for xref in range(1, min(pdf.xref_length(), _MAX_OBJECTS)):
        try:
            content = pdf.xref_object(xref, compressed=True)
        except RuntimeError:  # a broken object: the page that uses it reports it
            continue
        if "/VE" not in content and "/OCMD" not in content:
            continue
        found = mupdf.pdf_load_object(document, xref)
        for membership in _find_memberships(mupdf, found):
            _replace_expression(mupdf, membership, states)


def _read_states(mupdf: Any, document: Any) -> dict[int, bool]:
    """Whether each layer is on when the file is viewed, by the number of its object."""
    root = mupdf.pdf_dict_gets(mupdf.pdf_trailer(document), "Root")
    layers = mupdf.pdf_dict_gets(mupdf.pdf_dict_gets(root, "OCProperties"), "OCGs")
    found = [mupdf.pdf_array_get(layers, n) for n in range(mupdf.pdf_array_len(layers))]
    stack = mupdf.PdfResourceStack()
    return {mupdf.pdf_to_num(one): not mupdf.pdf_is_ocg_hidden(document, stack, "View", one) for one in found}


def _find_memberships(mupdf: Any, found: Any, depth: int = 0) -> Iterator[Any]:
    """Yield the dictionaries with an expression or a list of layers in an object, not in those that it refers to."""
    if depth > _MAX_DEPTH or (depth and mupdf.pdf_is_indirect(found)):
        return
    if mupdf.pdf_is_dict(found):
        if any(mupdf.pdf_dict_gets(found, key).m_internal for key in ("VE", "OCGs")):
            yield found
        for n in range(mupdf.pdf_dict_len(found)):
            yield from _find_memberships(mupdf, mupdf.pdf_dict_get_val(found, n), depth + 1)
    elif mupdf.pdf_is_array(found):
        for n in range(mupdf.pdf_array_len(found)):
            yield from _find_memberships(mupdf, mupdf.pdf_array_get(found, n), depth + 1)


def _replace_expression(mupdf: Any, membership: Any, states: Mapping[int, bool]) -> None:
    expression = mupdf.pdf_dict_gets(membership, "VE")
    if mupdf.pdf_is_array(expression):
        layers = dict(_list_layers(mupdf, expression, set()))
        is_visible = _evaluate(mupdf, expression, states, {})
    elif mupdf.pdf_to_name(mupdf.pdf_dict_gets(membership, "Type")) == "OCMD":
        layers = dict(_list_members(mupdf, mupdf.pdf_dict_gets(membership, "OCGs")))
        policy = _POLICIES.get(mupdf.pdf_to_name(mupdf.pdf_dict_gets(membership, "P")), any)
        is_visible = policy(states.get(layer, True) for layer in layers)
    else:
        return  # the catalogue's list of all layers
    if not layers:
        return
    layer = next(iter(layers))
    is_on = states.get(layer, True)
    own = mupdf.pdf_new_array(mupdf.pdf_get_bound_document(membership), 1)
    mupdf.pdf_array_push(own, layers[layer])
    mupdf.pdf_dict_puts(membership, "OCGs", own)
    mupdf.pdf_dict_puts(membership, "P", mupdf.pdf_new_name("AnyOn" if is_visible == is_on else "AllOff"))
    mupdf.pdf_dict_dels(membership, "VE")  # MuPDF draws everything that has one


def _list_members(mupdf: Any, listed: Any) -> Iterator[tuple[int, Any]]:
    """Yield the layers of a list, which may be one layer, by the numbers of their objects."""
    count = mupdf.pdf_array_len(listed)
    for member in [mupdf.pdf_array_get(listed, n) for n in range(count)] or [listed]:
        if number := mupdf.pdf_to_num(member):
            yield number, member


def _list_layers(mupdf: Any, expression: Any, seen: set[int], depth: int = 0) -> Iterator[tuple[int, Any]]:
    """Yield the layers of an expression, by the numbers of their objects. `seen` are the arrays that it refers to."""
    for n in range(1, mupdf.pdf_array_len(expression) if depth < _MAX_DEPTH else 0):
        operand = mupdf.pdf_array_get(expression, n)
        number = mupdf.pdf_to_num(operand)
        if not mupdf.pdf_is_array(operand):
            if number:
                yield number, operand
        elif number not in seen:
            seen |= {number} - {0}
            yield from _list_layers(mupdf, operand, seen, depth + 1)


def _evaluate(mupdf: Any, operand: Any, states: Mapping[int, bool], known: dict[int, bool], depth: int = 0) -> bool:
    """Whether what has this expression is visible; one that makes no sense hides nothing.

    `known` are the values of the arrays that it refers to: each is evaluated once, also where one refers to itself.
    """
    number = mupdf.pdf_to_num(operand)
    if not mupdf.pdf_is_array(operand):
        return states.get(number, True)
    if number in known or depth >= _MAX_DEPTH:
        return known.get(number, True)
    known |= {number: True} if number else {}
    value = _combine(mupdf, operand, states, known, depth)
    known |= {number: value} if number else {}
    return value


def _combine(mupdf: Any, operand: Any, states: Mapping[int, bool], known: dict[int, bool], depth: int) -> bool:
    parts = (mupdf.pdf_array_get(operand, n) for n in range(1, mupdf.pdf_array_len(operand)))
    values = [_evaluate(mupdf, part, states, known, depth + 1) for part in parts]
    match mupdf.pdf_to_name(mupdf.pdf_array_get(operand, 0)):
        case "Not":
            return not all(values)
        case "Or":
            return any(values)
        case _:
            return all(values)

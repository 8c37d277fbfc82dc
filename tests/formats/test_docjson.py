"""DocJSON: what is written is what is read back, and the schema in docs/ says what it is."""

from __future__ import annotations

import importlib.util
import json

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from tests import ROOT
from tests.fakes.documents import assembled, checkpoint, documents, element
from twopass.document import Document
from twopass.formats import docjson, markdown
from twopass.formats.draft import Draft
from twopass.formats.registry import WRITERS
from twopass.job import Format


@settings(max_examples=60)
@given(documents())
def test_any_document_comes_back_from_its_json(document: Document) -> None:
    """loads(dumps(d)) == d, and the same document gives the same bytes."""
    data = docjson.dumps(document)

    assert docjson.loads(data) == document
    assert docjson.dumps(docjson.loads(data)) == data


@settings(max_examples=25)
@given(documents())
def test_any_document_fits_the_schema(document: Document) -> None:
    """What dumps writes is valid against the published JSON Schema."""
    Draft202012Validator(docjson.schema()).validate(json.loads(docjson.dumps(document)))


def test_the_schema_in_docs_is_fresh() -> None:
    """Who changes a field runs scripts/make_schema.py."""
    spec = importlib.util.spec_from_file_location("make_schema", ROOT / "scripts" / "make_schema.py")
    assert spec and spec.loader
    make_schema = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_schema)

    assert make_schema.SCHEMA_FILE.read_text(encoding="utf-8") == make_schema.text()


def test_each_element_stands_on_a_line_of_its_own() -> None:
    """Diffs and line tools see one element at a time."""
    document = assembled(checkpoint(1, element("text", "One."), element("text", "Two.")))

    lines = [line for line in docjson.dumps(document).decode().splitlines() if '"kind"' in line]

    assert len(lines) == 2


def test_unknown_fields_are_refused() -> None:
    """A file of another shape is no DocJSON 1.0."""
    data = json.loads(docjson.dumps(assembled(checkpoint(1)))) | {"blocks": []}

    with pytest.raises(ValueError, match="blocks"):
        docjson.loads(json.dumps(data).encode())


def test_half_a_surrogate_pair_does_not_stop_the_document() -> None:
    """Broken PDFs contain characters without UTF-8; the JSON stays JSON."""
    broken = element("text").model_copy(update={"text": "a\ud800b"})
    document = assembled(checkpoint(1, broken))

    assert json.loads(docjson.dumps(document))["elements"][0]["text"] == "a\ud800b"
    assert WRITERS[Format.MARKDOWN].write(Draft(document))


def test_the_written_docjson_says_where_each_element_stands_in_the_markdown() -> None:
    """md_span counts characters of document.md."""
    document = assembled(checkpoint(1, element("title", "Springs"), element("text", "Two of them.")))

    written = docjson.loads(WRITERS[Format.DOCJSON].write(Draft(document)))
    text = WRITERS[Format.MARKDOWN].write(Draft(document)).decode()

    shown = [text[span.start : span.end] for e in written.elements if (span := e.md_span)]
    assert shown == ["# Springs", "Two of them."]
    assert markdown.write(written)[0] == text

"""DocJSON survives a round trip and follows the schema in docs/."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from scripts.generate import schema
from tests.fakes.documents import build_document, checkpoint, documents, element
from twopass.document import Document
from twopass.formats import docjson, markdown
from twopass.formats.registry import WRITERS
from twopass.formats.writer_input import WriterInput
from twopass.job import Format


@given(documents())
def test_any_document_survives_a_round_trip(document: Document) -> None:
    """A document that is written and read back is equal, and gives the same bytes again."""
    data = docjson.dumps(document)

    assert docjson.loads(data) == document
    assert docjson.dumps(docjson.loads(data)) == data


@settings(max_examples=25)
@given(documents())
def test_any_document_fits_the_schema(document: Document) -> None:
    """Every document that is written is valid under the published JSON Schema."""
    Draft202012Validator(docjson.schema()).validate(json.loads(docjson.dumps(document)))


def test_the_schema_and_the_flags_in_docs_are_up_to_date() -> None:
    """docs/docjson.schema.json and the table of flags are those of the code; `make docs` writes them."""
    assert all(path.read_text(encoding="utf-8") == text for path, text in schema.render_files().items())


def test_each_element_is_on_its_own_line() -> None:
    """Each element is on its own line, so that diffs and line tools show single elements."""
    document = build_document(checkpoint(1, element("text", "One."), element("text", "Two.")))

    lines = [line for line in docjson.dumps(document).decode().splitlines() if '"kind"' in line]

    assert len(lines) == 2


def test_unknown_fields_are_refused() -> None:
    """A file with a field that DocJSON 1.1 does not have is refused by the field's name."""
    data = json.loads(docjson.dumps(build_document(checkpoint(1)))) | {"blocks": []}

    with pytest.raises(ValueError, match="blocks"):
        docjson.loads(json.dumps(data).encode())


def test_half_a_surrogate_pair_does_not_stop_the_document() -> None:
    """Unpaired surrogates, which broken PDFs contain, are written to JSON and Markdown without an error."""
    broken = element("text").model_copy(update={"text": "a\ud800b"})
    document = build_document(checkpoint(1, broken))

    assert json.loads(docjson.dumps(document))["elements"][0]["text"] == "a\ud800b"
    assert WRITERS[Format.MARKDOWN].write(WriterInput(document))


def test_docjson_holds_each_elements_span_in_the_markdown() -> None:
    """The written DocJSON has an md_span for each element, which counts characters of document.md."""
    document = build_document(checkpoint(1, element("title", "Springs"), element("text", "Two of them.")))

    written = docjson.loads(WRITERS[Format.DOCJSON].write(WriterInput(document)))
    text = WRITERS[Format.MARKDOWN].write(WriterInput(document)).decode()

    shown = [text[span.start : span.end] for e in written.elements if (span := e.md_span)]
    assert shown == ["# Springs", "Two of them."]
    assert markdown.write(written)[0] == text

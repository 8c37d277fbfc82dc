"""`twopass schema`: the schema of DocJSON without a checkout."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from tests import ROOT
from twopass.cli.app import app


def test_the_printed_schema_is_the_published_one() -> None:
    """The command prints what docs/docjson.schema.json holds."""
    result = CliRunner().invoke(app, ["schema"])

    assert json.loads(result.stdout) == json.loads((ROOT / "docs" / "docjson.schema.json").read_text())

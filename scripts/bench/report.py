"""Print what a benchmark found as JSON lines, as soon as it is known."""

from __future__ import annotations

import json
from typing import Any


def print_json(**facts: Any) -> None:
    """Print one line; floats have three decimals."""
    rounded = {name: round(value, 3) if isinstance(value, float) else value for name, value in facts.items()}
    print(json.dumps(rounded), flush=True)

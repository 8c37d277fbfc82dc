"""The base class of all data that is read from or written to JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen model that refuses unknown fields; equal content means equal values.

    What other programs and later versions write is read by classes that say `extra="ignore"`. An error does not repeat
    the input, which may hold a password.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def refuse_boolean(value: Any) -> Any:
    """A validator of numbers: pydantic takes true for 1, which is a mistake of the caller."""
    if isinstance(value, bool):
        raise ValueError("must be a number, not true or false")
    return value

"""The base class of DocJSON's values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen model that refuses unknown fields; equal content means equal values."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

"""A detected region, and the JSON in which the detection of a page is stored.

A detection is stored as the detector gave it, before suppression, so that newer rules can be applied to it without the
model. The grammar (`v` 1; lengths as fractions of the page as displayed):

    {"v": 1,
     "landscape": true,                         absent on pages that are not wider than high
     "regions": [{"label": "text", "score": 0.97, "box": [x0, y0, x1, y1], "order": 3,
                  "polygon": [[x, y], ...]}],   absent where it is the box
     "ink": [[x0, y0, x1, y1]]}                  paragraphs of ink outside all regions
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from twopass.detection.labels import LABELS, Label
from twopass.document import Box
from twopass.values import Value

_GRAMMAR_VERSION = 1
DETECT = "<detect regions>"  # the prompt that a detector answers with this JSON
_DECIMALS = 5  # as those of boxes

Polygon = tuple[tuple[float, float], ...]

_KNOWN = {str(label): label for label in LABELS}


class Region(Value, extra="ignore"):
    """One region. `order` is its place in the model's reading order; None where the model did not see it.

    `label` is None where it is not one of the labels that were known when this was written.
    """

    native_label: str = Field(alias="label")
    score: float = Field(1.0, ge=0, le=1)
    box: Box
    order: int | None = None
    polygon: Polygon = ()

    @property
    def label(self) -> Label | None:
        return find_label(self.native_label)


class Detection(Value, extra="ignore", validate_by_name=True, validate_by_alias=True):
    """Everything that was detected on one page."""

    v: int = Field(_GRAMMAR_VERSION, ge=1, le=_GRAMMAR_VERSION)
    is_landscape: bool = Field(False, alias="landscape")
    regions: tuple[Region, ...] = ()
    ink: tuple[Box, ...] = ()


def find_label(name: str) -> Label | None:
    """The label of this name; None where it was not known when this was written."""
    return _KNOWN.get(name)


def make_region(
    label: str, box: Box, score: float = 1.0, order: int | None = None, polygon: Sequence[Sequence[float]] = ()
) -> Region:
    """Build a region from values that are already valid."""
    points = tuple((float(x), float(y)) for x, y in polygon)
    return Region(label=label, box=box, score=score, order=order, polygon=points)


def to_json(detection: Detection) -> str:
    """Write compact JSON; the same detection always gives the same bytes."""
    content: dict[str, Any] = {
        "v": detection.v,
        **({"landscape": True} if detection.is_landscape else {}),
        "regions": [_to_dict(region) for region in detection.regions],
        "ink": [_round(box) for box in detection.ink],
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def parse(text: str) -> Detection:
    """Read the JSON; raises ValueError (pydantic's ValidationError is one) if it is not a detection."""
    try:
        return Detection.model_validate(json.loads(text, parse_constant=_reject_constant))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _to_dict(region: Region) -> dict[str, Any]:
    content: dict[str, Any] = {"label": region.native_label, "score": round(region.score, 4), "box": _round(region.box)}
    if region.order is not None:
        content["order"] = region.order
    if region.polygon:
        content["polygon"] = [_round(point) for point in region.polygon]
    return content


def _round(values: Sequence[float]) -> list[float]:
    return [round(value, _DECIMALS) for value in values]


def _reject_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")

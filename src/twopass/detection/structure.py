"""What finds the elements of a page: a setting that engines and families both follow."""

from __future__ import annotations

from enum import StrEnum


class Structure(StrEnum):
    """The model itself, a layout detector in front of it, or the detector where the model failed.

    `auto` is what the model needs: the detector for models that read single regions, the model itself for others.
    """

    AUTO = "auto"
    MODEL = "model"
    DETECTOR = "detector"
    FALLBACK = "fallback"

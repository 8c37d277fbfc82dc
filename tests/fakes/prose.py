"""Lines of prose for pages that are read by OCR: ordinary words, no longer than OCR needs."""

from __future__ import annotations

PROSE = (
    "The level in the borehole is measured before the pump starts and after it has run.",
    "Prices are those of January and half of the loss is now thought to lie in the village.",
    "Both operators write down what they see on their rounds, and the council reads it.",
)

"""Answers in the format of DeepSeek-OCR: small ones of our own, and the paths of real ones."""

from __future__ import annotations

import random

from tests import ROOT

REAL = ROOT.parent / "shared" / "corpus" / "answers"  # next to the repository; not everyone has it
PAIRS = REAL.parent / "pairs"


def block(label: str, content: str = "", box: tuple[int, ...] | str = (100, 100, 900, 200)) -> str:
    """One tag with its content; `box` may be any text in place of coordinates."""
    coordinates = f"[[{', '.join(map(str, box))}]]" if isinstance(box, tuple) else box
    return f"<|ref|>{label}<|/ref|><|det|>{coordinates}<|/det|>\n{content}  \n\n"


TABLE = "<table><tr><td>Pump</td><td>Flow (m³/h)</td></tr><tr><td>P-1</td><td>12.5</td></tr></table>"
PAGE = (
    block("title", "# Water in the Hills", (100, 50, 900, 90))
    + block("sub_title", "## 1. Springs", (100, 100, 500, 120))
    + block("text", "The springs give \\(12.5\\) litres a second, and cost $5 a day to keep. ", (100, 130, 900, 200))
    + block("table", "", (100, 220, 900, 400))
    + block("table_caption", f"<center>Table 1: Pumps &amp;gt; 10 m³/h </center>\n\n{TABLE}", (100, 205, 900, 218))
    + block("equation", "\\[ Q = v A \\tag{3} \\]", (300, 420, 700, 450))
    + block("image", "", (100, 470, 480, 700))
    + block("image_caption", "<center>Figure 1: The two springs. </center>", (100, 705, 480, 730))
    + block("text", "- reservoir\n- pump", (520, 470, 900, 530))
)
FORM = "".join(
    block("text", text, (100, 100 + 27 * n + n % 2, 300, 118 + 27 * n))
    for n, text in enumerate(["Name: ______", "Date: ______"] * 16)
)
CONTENTS = block("title", "# Contents") + block(
    "text", "\n".join(f"{n}. Chapter {n} {'.' * 120} {3 * n}" for n in range(1, 61)), (100, 150, 900, 950)
)
DATES = block("text", "\n".join(f"2024-{m:02}-{d:02} closed" for m in range(1, 5) for d in range(1, 31)))
EMPTY_ROWS = block("table", f"<table>{'<tr><td></td><td></td><td></td></tr>' * 60}</table>")
# A page thirty times as high as wide: a line is less than one cell of the grid high.
SKINNY = "".join(block("text", str(n), (67, 10 * n, 138, 10 * n + n % 2)) for n in range(1, 99))
HUGE = (1, 2, 900, 900)
REPETITIVE = {
    "hex": block("text", "FF " * 64, HUGE),
    "genes": block("text", "ACGT" * 60, HUGE),
    "zeros": block("text", "0" * 80, HUGE),
    "blanks to fill in": block("text", "\n".join(["Name: ________  Date: ________"] * 45), HUGE),
    "an index": block("text", "\n".join(f"p. {37 * n % 1000}" for n in range(300)), HUGE),
    "a refrain": block("text", "\n".join(["We all live in a yellow submarine, yellow submarine"] * 12), HUGE),
    "ticked rows": block("table", f"<table>{'<tr><td>□</td><td></td></tr>' * 120}</table>", HUGE),
}
LEGITIMATE = (PAGE, FORM, CONTENTS, DATES, EMPTY_ROWS, SKINNY, *REPETITIVE.values())
# Evenly spaced, each in a place of its own.
EVEN = {
    "a column of choices": "".join(block("text", "Yes / No", (100, 30 * n, 500, 30 * n + 20)) for n in range(30)),
    "ruled lines": "".join(block("text", "_" * 60, (100, 30 * n, 900, 30 * n + 20)) for n in range(30)),
    "labels": "".join(
        block("text", "ACME Corp", (1 + 330 * (n % 3), 37 * (n // 3), 320 + 330 * (n % 3), 37 * (n // 3) + 30))
        for n in range(81)
    ),
}

LOOPS = {
    "evenly spaced": PAGE
    + "".join(block("text", "<pre> <pre>", (520, 40 + 7 * n, 780, 48 + 7 * n)) for n in range(130)),
    "degenerate": PAGE + "".join(block("text", "FRE"[n % 3], (20 + n, 844, 20, 860)) for n in range(40)),
    "same place": PAGE + "".join(block("text", "Total: 15", (100, 800, 300, 820)) for _ in range(20)),
    "a letter": PAGE + block("text", "Fine so far. " + "o" * 300),
    "a sentence": PAGE + block("text", "Fine so far. " + "The meter of the pump was read on Monday. " * 30),
    "a phrase": PAGE + block("text", "Fine so far. " + "and so on, " * 200),
    "cells": PAGE + block("table", "<table><tr>" + "<td></td>" * 400),
    "counting": PAGE + block("text", "".join(f"item {n} and " for n in range(600))),
}

PIECES = (
    "<|ref|>",
    "<|/ref|>",
    "<|det|>",
    "<|/det|>",
    "[[1, 2, 3, 4]]",
    "[[",
    "]]",
    "text",
    "12,",
    "\n",
    "<table>",
    "<｜end▁of▁sentence｜>",
)


def mutate(text: str, rolls: random.Random) -> str:
    """Return an answer with parts removed, duplicated and moved, and with pieces of tags inserted."""
    for _ in range(rolls.randint(1, 6)):
        a, b = sorted(rolls.randrange(len(text) + 1) for _ in range(2))
        b = min(b, a + 40)
        text = rolls.choice(
            [text[:a] + text[b:], text[:b] + text[a:], text[:a], text[:a] + rolls.choice(PIECES) + text[a:]]
        )
        text = text or "x"
    return text

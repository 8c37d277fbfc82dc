"""What a sound model answers to the canary's images, in the form of its answers to other pages, and a detector."""

from __future__ import annotations

import re
from typing import Any

from twopass.detection.region import Detection, make_region, to_json
from twopass.document import Box
from twopass.engines.interface import Prompt
from twopass.families import unlimited
from twopass.families.deepseek import PROMPTS
from twopass.families.interface import CanaryQuestion
from twopass.pages import canary_images
from twopass.pages.canary_images import BLOCKS, LINES, REPEATED_LINE, ROWS

GRID = 999
TEXT = "\n".join(LINES)
BANNED = f"{REPEATED_LINE}\nSeven yellow river lanterns"
REPEATED = "\n".join([REPEATED_LINE] * canary_images.REPEATS)


def build_tag(label: str, box: Box, shift: int = 0) -> str:
    numbers = ", ".join(str(number + shift) for number in box.to_grid(GRID))
    return f"<|ref|>{label}<|/ref|><|det|>[[{numbers}]]<|/det|>\n"


def build_page_answer(shift: int = 0) -> str:
    """The page as grounded markdown; `shift` moves all boxes by so many units of the grid."""
    page = canary_images.draw_page()
    labels = ("sub_title", "text", "text", "text")
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in ROWS)
    blocks = [
        build_tag(label, box, shift) + ("## " if label == "sub_title" else "") + block.text
        for label, block, box in zip(labels, BLOCKS, page.block_boxes, strict=True)
    ]
    table = build_tag("table", page.table_box, shift) + f"<table>{rows}</table>"
    return "  \n\n".join([*blocks, table])


def build_detection(shift: float = 0.0, dropped: str = "") -> str:
    """The regions of the page; `shift` moves all boxes right by this part of the page, `dropped` loses one block."""
    page = canary_images.draw_page()
    places = [(block.text, "text", box) for block, box in zip(BLOCKS, page.block_boxes, strict=True)]
    places.append(("table", "table", page.table_box))
    regions = [
        make_region(label, Box.of(box.x0 + shift, box.y0, box.x1 + shift, box.y1), order=n)
        for n, (text, label, box) in enumerate(places)
        if text != dropped
    ]
    return to_json(Detection(regions=tuple(regions)))


def answer_prompt(prompt: Prompt) -> str:
    """What a sound engine with a detector answers to the prompt of each check, by the prompt's name."""
    name = prompt.id.removeprefix("canary/")
    if name == "regions":
        return build_detection()
    if prompt.text == unlimited.PROMPTS["document"]:
        return build_tagged_answer(name)
    return {"page": build_page_answer(), "ban": BANNED, "text": TEXT}[name]


def answer_request(request: dict[str, Any]) -> str:
    """The answer to a chat completion request: to each of the images, told apart by the prompt and the ban."""
    if request["messages"][0]["content"][1]["text"] == PROMPTS["document"]:
        return build_page_answer()
    return BANNED if request.get("vllm_xargs", {}).get("ngram_size") == CanaryQuestion.ngram else TEXT


def build_tagged_answer(name: str) -> str:
    """What a sound Unlimited-OCR answers to the image of this name: one box in every tag, no hashes."""
    if name == "page":
        label = re.compile(r"<\|ref\|>(\w+)<\|/ref\|><\|det\|>\[(.*?)\]<\|/det\|>\n")
        answer = label.sub(r"<|det|>\1 \2<|/det|>", build_page_answer())
        return answer.replace("sub_title", "title").replace("## ", "").replace("  \n\n", "\n")
    lines = BANNED.splitlines() if name == "ban" else LINES
    tags = (f"<|det|>text [100, {100 + 50 * n}, 900, {140 + 50 * n}]<|/det|>" for n in range(len(lines)))
    return "\n".join(map("".join, zip(tags, lines, strict=True)))

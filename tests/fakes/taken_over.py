"""What a document does with a page worker that it has taken over."""

from __future__ import annotations

import os
from pathlib import Path

from twopass.document import Element


def send_answer(answer: bytes) -> Element:
    """Send any bytes as the answer, and end."""
    links = {int(path.name): os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    (pipe,) = (number for number, link in links.items() if number > 2 and link.startswith("pipe:"))
    with open(pipe, "wb") as answers:
        answers.write(answer)
    os._exit(0)

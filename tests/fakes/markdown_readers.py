"""Readers of Markdown with HTML switched on, and what a browser would make of their HTML."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import markdown as python_markdown
import mistune
from markdown_it import MarkdownIt


def read_with_markdown_it(text: str) -> str:
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    return str(reader.render(text))


@cache
def _make_mistune() -> mistune.Markdown:
    renderer = mistune.HTMLRenderer(escape=False, allow_harmful_protocols=True)
    return mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "footnotes"])


def read_with_mistune(text: str) -> str:
    return str(_make_mistune()(text))


def read_with_python_markdown(text: str) -> str:
    """Python-Markdown as it comes: without tables, fenced code and footnotes."""
    return python_markdown.markdown(text)


def read_with_python_markdown_extra(text: str) -> str:
    return python_markdown.markdown(text, extensions=["extra"])


def read_with_marked(folder: Path, texts: Sequence[str]) -> list[str]:
    """Read all texts in one process of Node.js; `folder` holds the package."""
    script = (
        f"const {{marked}} = require({json.dumps(str(folder / 'node_modules' / 'marked'))});"
        "const texts = JSON.parse(require('fs').readFileSync(0));"
        "console.log(JSON.stringify(texts.map((text) => marked.parse(text))));"
    )
    done = subprocess.run(["node", "-e", script], input=json.dumps(texts), capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout))


READERS: Mapping[str, Callable[[str], str]] = {
    "markdown-it": read_with_markdown_it,
    "mistune": read_with_mistune,
    "python-markdown": read_with_python_markdown,
    "python-markdown extra": read_with_python_markdown_extra,
}


class Page(HTMLParser):
    """The elements, the attributes and the visible text of a page of HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.comments: list[str] = []
        self._texts: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """What a reader sees, with single spaces."""
        return " ".join("".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        self._texts.append(" " if tag not in INLINE else "")

    def handle_endtag(self, tag: str) -> None:
        self._texts.append(" " if tag not in INLINE else "")

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.comments.append(data)

    def handle_pi(self, data: str) -> None:
        self.elements["?"] += 1

    def handle_decl(self, decl: str) -> None:
        self.elements["!"] += 1

    def unknown_decl(self, data: str) -> None:
        self.elements["!"] += 1


INLINE = frozenset({"em", "strong", "del", "s", "code", "sup", "sub", "a", "span", "abbr"})

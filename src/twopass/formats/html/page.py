"""Parts of HTML pages that need no network: tags, embedded assets and the content security policy."""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources

from markupsafe import Markup

CLICKABLE_SCHEMES = ("http://", "https://", "mailto:")  # other links are shown as text
_INVALID_IN_HTML = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufdcf\ufdf0-\ufffd\U00010000-\U0010ffff]")


def tag(name: str, content: str = "", /, **attributes: object) -> Markup:
    """Build an element. Attributes that are None are left out; `class_` is class, `aria_label` is aria-label.

    The name and the names of attributes are constants of the code; everything else is escaped unless it is Markup.
    """
    return Markup("{}{}</{}>").format(open_tag(name, **attributes), content, name)


def open_tag(name: str, /, **attributes: object) -> Markup:
    given = {key.strip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    written = Markup("").join(Markup(' {}="{}"').format(key, value) for key, value in given.items())
    return Markup("<{}{}>").format(name, written)


def load_asset(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text("utf-8")


def load_style(package: str, name: str) -> str:
    """A style sheet after the rules that the review page and the page of `twopass serve` share."""
    return load_asset(__package__, "base.css") + load_asset(package, name)


def make_policy(style: str, script: str | None = None) -> str:
    """A content security policy that allows only this style, this script and pictures.

    Style attributes are allowed because MathML uses them.
    """
    scripts = f"script-src {_hash(script)}; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src-elem {_hash(style)}; "
        "style-src-attr 'unsafe-inline'; img-src 'self' file: data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def encode(html: str) -> bytes:
    """Encode a page; characters that HTML does not allow become U+FFFD."""
    return _INVALID_IN_HTML.sub("\ufffd", html).encode()

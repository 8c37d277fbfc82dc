"""A prompt in, the bytes of a chat request out: what is said to an OpenAI-compatible server.

Knows the protocol's fields and the ones vLLM adds. Runs in page workers: a page's PNG and its base64 take
longer than an event loop may be held. Knows nothing of connections.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

from twopass.engines.interface import Prompt
from twopass.pages.shared_pixels import Pixels

FAST = 1  # zlib's level: a page takes 40 ms instead of 300, and a quarter more bytes
BESIDE_TEXT = 64  # tokens a chat template may add around the text


@dataclass(frozen=True)
class Served:
    """What a request must know of the server.

    `context` is the model's length in tokens, None when the server does not tell. `plain` leaves out what only
    vLLM knows, `priority` and `modes` add what only some servers take.
    """

    model: str
    context: int | None = None
    plain: bool = False
    priority: bool = False
    modes: bool = False


def body(prompt: Prompt, served: Served) -> bytes:
    """In a page worker: the request's JSON."""
    return json.dumps({**_openai(prompt, served), **_beyond(prompt, served)}).encode()


def _openai(prompt: Prompt, served: Served) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": data_url(prompt.image)}}
    said: dict[str, Any] = {
        "model": served.model,
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": prompt.text}]}],
        "temperature": prompt.sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if (tokens := max_tokens(prompt, served.context)) is not None:
        said["max_tokens"] = tokens
    return said


def max_tokens(prompt: Prompt, context: int | None) -> int | None:
    """The limit to send, None for the context's own end.

    vLLM refuses a limit that leaves the text no room, 8192 of 8192 for instance; without one it answers up to
    the context's end, which is what such a caller wants.
    """
    asked = prompt.sampling.max_tokens
    room = len(prompt.text.encode()) + BESIDE_TEXT  # no token is shorter than a byte
    return None if asked is None or (context is not None and asked + room > context) else asked


def _beyond(prompt: Prompt, served: Served) -> dict[str, Any]:
    """Fields that OpenAI itself does not know."""
    if served.plain:
        return {}
    sampling = prompt.sampling
    said: dict[str, Any] = {"skip_special_tokens": False}  # <|ref|> and <|det|> are the answer's grammar
    if sampling.ngram:  # no processor takes a ban of nothing
        said["vllm_xargs"] = {
            "ngram_size": sampling.ngram,
            "window_size": sampling.window,
            "whitelist_token_ids": list(sampling.allowed_tokens),
        }
    if served.priority:
        said["priority"] = prompt.priority
    if served.modes:
        said["mm_processor_kwargs"] = {"mode": prompt.mode, "max_crops": prompt.max_crops}
    return said


def data_url(pixels: Pixels) -> str:
    """PNG: what JPEG does to letters, the model reads."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.array()).save(file, "PNG", compress_level=FAST)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()

"""Build the body of a chat completion request, with the fields that vLLM adds to OpenAI's protocol.

It runs in page workers: compressing a page as PNG and encoding it as base64 would block the event loop too long.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import dataclass
from typing import Any

from twopass.engines.interface import Prompt
from twopass.pages.shared_pixels import Pixels

PNG_COMPRESSION = 1  # zlib's level 1: a page takes 40 ms instead of 300 and a quarter more bytes
TEMPLATE_TOKENS = 64  # tokens that a chat template may add around the text


@dataclass(frozen=True)
class ServerOptions:
    """What the server serves and which request fields it accepts.

    `context` is the model's context length in tokens, None if the server does not report it. `plain` omits the fields
    that only vLLM accepts; `priority` and `modes` add fields that only some servers accept.
    """

    model: str
    context: int | None = None
    plain: bool = False
    priority: bool = False
    modes: bool = False


def build_body(prompt: Prompt, server: ServerOptions) -> bytes:
    """The request's JSON."""
    return json.dumps({**_build_standard_fields(prompt, server), **_build_vllm_fields(prompt, server)}).encode()


def _build_standard_fields(prompt: Prompt, server: ServerOptions) -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": _encode_data_url(prompt.image)}}
    fields: dict[str, Any] = {
        "model": server.model,
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": prompt.text}]}],
        "temperature": prompt.sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if (tokens := choose_max_tokens(prompt, server.context)) is not None:
        fields["max_tokens"] = tokens
    return fields


def choose_max_tokens(prompt: Prompt, context: int | None) -> int | None:
    """The token limit to send; None means none, and the answer may then fill the context.

    vLLM refuses a limit that leaves no room for the prompt, such as 8192 of 8192. Sending none has the effect that the
    caller wants.
    """
    limit = prompt.sampling.max_tokens
    prompt_tokens = len(prompt.text.encode()) + TEMPLATE_TOKENS  # upper bound: a token has at least one byte
    return None if limit is None or (context is not None and limit + prompt_tokens > context) else limit


def _build_vllm_fields(prompt: Prompt, server: ServerOptions) -> dict[str, Any]:
    """The fields that are not part of OpenAI's protocol."""
    if server.plain:
        return {}
    sampling = prompt.sampling
    fields: dict[str, Any] = {"skip_special_tokens": False}  # <|ref|> and <|det|> are part of the answer
    if sampling.ngram:  # the logits processors refuse a size of 0
        fields["vllm_xargs"] = {
            "ngram_size": sampling.ngram,
            "window_size": sampling.window,
            **({"whitelist_token_ids": list(sampling.allowed_tokens)} if sampling.allowed_tokens else {}),
        }
    elif sampling.repetition_penalty != 1.0:
        fields["repetition_penalty"] = sampling.repetition_penalty
    if server.priority:
        fields["priority"] = prompt.priority
    if server.modes:
        fields["mm_processor_kwargs"] = {"mode": prompt.mode, "max_crops": prompt.max_crops}
    return fields


def _encode_data_url(pixels: Pixels) -> str:
    """Encode as PNG, because JPEG artefacts around letters are misread."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.array()).save(file, "PNG", compress_level=PNG_COMPRESSION)
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()

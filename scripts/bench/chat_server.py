"""Run `vllm serve` in a child process, and ask it over HTTP about images as PNG, as clients do."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

PORT = 8090
NAME = "bench"
FLAGS = {
    "dtype": "--dtype", "load_format": "--load-format", "max_model_len": "--max-model-len",
    "max_num_seqs": "--max-num-seqs", "max_num_batched_tokens": "--max-num-batched-tokens",
    "gpu_memory_utilization": "--gpu-memory-utilization", "mm_processor_cache_gb": "--mm-processor-cache-gb",
    "mm_encoder_attn_backend": "--mm-encoder-attn-backend",
}  # fmt: skip
SHOWN = 1500  # characters of the log's end


@dataclass(frozen=True)
class Question:
    """A prompt about a Pillow image, with an answer of so many tokens."""

    text: str
    image: Any
    tokens: int

    def to_body(self) -> dict[str, Any]:
        buffer = io.BytesIO()
        self.image.save(buffer, "PNG", compress_level=1)
        url = f"data:image/png;base64,{base64.b64encode(buffer.getvalue()).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": self.text}]
        return {
            "model": NAME, "messages": [{"role": "user", "content": content}], "max_tokens": self.tokens,
            "temperature": 0, "ignore_eos": True,
        }  # fmt: skip


@dataclass(frozen=True)
class Server:
    """`is_ready`: whether it answers."""

    is_ready: bool
    log: Path

    def read_log_end(self) -> str:
        return self.log.read_text()[-SHOWN:]

    async def ask(self, questions: Sequence[Question], concurrency: int) -> int:
        """Ask all, so many at once; returns the number of tokens of all answers."""
        bodies = {id(question): json.dumps(question.to_body()).encode() for question in questions}
        seats = asyncio.Semaphore(concurrency)
        limits = httpx.Limits(max_connections=concurrency)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{PORT}", timeout=600, limits=limits) as client:

            async def ask(question: Question) -> int:
                async with seats:
                    answer = await client.post(
                        "/v1/chat/completions", content=bodies[id(question)],
                        headers={"content-type": "application/json"},
                    )  # fmt: skip
                answer.raise_for_status()
                return int(answer.json()["usage"]["completion_tokens"])

            return sum(await asyncio.gather(*(ask(question) for question in questions)))


@contextmanager
def run(arguments: dict[str, Any], wait_s: float) -> Iterator[Server]:
    """Start the server without our plugin and wait until it answers, or has ended, or the time is over."""
    flags = [text for name, flag in FLAGS.items() if name in arguments for text in (flag, str(arguments[name]))]
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", arguments["model"],
        "--served-model-name", NAME, "--port", str(PORT), "--no-enable-prefix-caching",
        "--limit-mm-per-prompt", json.dumps(arguments["limit_mm_per_prompt"]), "--disable-log-stats", *flags,
    ]  # fmt: skip
    with tempfile.NamedTemporaryFile("w", suffix=".log") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "VLLM_PLUGINS": "", "VLLM_LOGGING_LEVEL": "INFO"},
        )  # fmt: skip
        try:
            yield Server(_wait_until_ready(process, time.monotonic() + wait_s), Path(log.name))
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _wait_until_ready(process: subprocess.Popen[Any], deadline: float) -> bool:
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=2) as answer:
            return bool(answer.status == 200)
        time.sleep(0.5)
    return False

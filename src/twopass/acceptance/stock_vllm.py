"""Greedy answers of vLLM without our plugin, in a process of its own: `python -m twopass.acceptance.stock_vllm IN OUT`.

Stock model classes, stock scheduler and worker, and the n-gram ban of vLLM's own DeepSeek-OCR module.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from twopass.acceptance.greedy_requests import Answer, Answers, Request
from twopass.errors import Code, EngineError

NGRAM_BAN = "vllm.model_executor.models.deepseek_ocr:NGramPerReqLogitsProcessor"
PREEMPTIONS = "vllm:num_preemptions"
SHOWN = 1500  # characters of the log's end in the error message


def ask(arguments: Mapping[str, Any], requests: Sequence[Request], alone: int) -> Answers:
    """Return the answers to so many requests one by one, and to all at once. Raises EngineError.

    `arguments` are those of `vllm.LLM`.
    """
    with tempfile.TemporaryDirectory(prefix="twopass-accept-") as name:
        folder = Path(name)
        job = {"arguments": arguments, "requests": _save(requests, folder), "alone": alone}
        (folder / "in.json").write_text(json.dumps(job))
        command = [sys.executable, "-m", __name__, str(folder / "in.json"), str(folder / "out.json")]
        environment = os.environ | {"VLLM_PLUGINS": ""}
        ended = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if ended.returncode:
            message = f"vLLM without our plugin ended with {ended.returncode}: {ended.stdout[-SHOWN:]}"
            raise EngineError(Code.ENGINE_DEAD, message)
        found = json.loads((folder / "out.json").read_text())
    one_by_one, together = ([Answer(*answer) for answer in found[name]] for name in ("alone", "together"))
    return Answers(one_by_one, together, found["preemptions"])


def _save(requests: Sequence[Request], folder: Path) -> list[dict[str, Any]]:
    saved = []
    for number, request in enumerate(requests):
        path = folder / f"{number}.rgb"
        path.write_bytes(request.image.array().tobytes())
        saved.append(
            {
                "prompt": request.prompt,
                "image": [str(path), request.image.width, request.image.height],
                "ngram": request.ngram,
                "window": request.window,
                "allowed": request.allowed,
                "max_tokens": request.max_tokens,
            }
        )
    return saved


def main(source: Path, target: Path) -> None:
    """Read the requests, answer them, write the answers."""
    from vllm import LLM

    job = json.loads(source.read_text())
    llm = LLM(logits_processors=[NGRAM_BAN], disable_log_stats=False, **job["arguments"])
    prompts, params = [_build_prompt(one) for one in job["requests"]], [_build_params(one) for one in job["requests"]]
    pairs = [*zip(prompts, params, strict=True)][: job["alone"]]
    alone = [_answer(llm, [prompt], [one])[0] for prompt, one in pairs]
    together = _answer(llm, prompts, params)
    preemptions = sum(metric.value for metric in llm.get_metrics() if metric.name == PREEMPTIONS)
    target.write_text(json.dumps({"alone": alone, "together": together, "preemptions": preemptions}))


def _build_prompt(request: Mapping[str, Any]) -> dict[str, Any]:
    from PIL import Image

    path, width, height = request["image"]
    image = Image.frombytes("RGB", (width, height), Path(path).read_bytes())
    return {"prompt": request["prompt"], "multi_modal_data": {"image": image}}


def _build_params(request: Mapping[str, Any]) -> Any:
    from vllm import SamplingParams

    ban = {
        "ngram_size": request["ngram"],
        "window_size": request["window"],
        "whitelist_token_ids": request["allowed"],
    }
    return SamplingParams(temperature=0, max_tokens=request["max_tokens"], detokenize=False, extra_args=ban)


def _answer(llm: Any, prompts: list[Any], params: list[Any]) -> list[tuple[str, str]]:
    """Return each answer and why it ended. The text is decoded at once, not by vLLM's incremental decoder."""
    answers = []
    for output in llm.generate(prompts, params, use_tqdm=False):
        answer = output.outputs[0]
        tokens = answer.token_ids[:-1] if answer.finish_reason == "stop" else answer.token_ids
        text = llm.get_tokenizer().decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        answers.append((text, answer.finish_reason))
    return answers


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

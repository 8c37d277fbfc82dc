"""Greedy answers of vLLM without our plugin, in a process of its own: `python -m twopass.acceptance.stock_vllm IN OUT`.

Stock model classes, stock scheduler and worker, and the n-gram ban of vLLM's own DeepSeek-OCR module.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from twopass.acceptance import child_process
from twopass.acceptance.greedy_tokens import Answer, Answers, Request
from twopass.engines.interface import Sampling
from twopass.engines.vllm.plugin import STOCK_NGRAM, STOCK_NGRAM_ENVIRONMENT
from twopass.pages.shared_pixels import Pixels

PREEMPTIONS = "vllm:num_preemptions"
LIMIT_S = 1800

BuildInput = Callable[[Request], tuple[str, Pixels]]


def ask(arguments: Mapping[str, Any], requests: Sequence[Request], alone: int, build_input: BuildInput) -> Answers:
    """The answers to so many requests one at a time, to all at once, and in halves. Raises EngineError.

    `arguments` are those of `vllm.LLM`; `build_input` returns text and image as vLLM's own model class expects them.
    """
    with tempfile.TemporaryDirectory(prefix="twopass-accept-") as name:
        folder = Path(name)
        job = {"arguments": arguments, "requests": _save(requests, folder, build_input), "alone": alone}
        environment = os.environ | {
            "VLLM_PLUGINS": "",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",  # lets vLLM's worker be asked for the class of its model
            **STOCK_NGRAM_ENVIRONMENT,
        }
        found = child_process.run(__name__, job, folder, environment, "vLLM without our plugin", LIMIT_S)
    one_by_one, together, halves = ([Answer(*one) for one in found[name]] for name in ("alone", "together", "halves"))
    return Answers(one_by_one, together, found["preemptions"], halves)


def _save(requests: Sequence[Request], folder: Path, build_input: BuildInput) -> list[dict[str, Any]]:
    saved = []
    for number, request in enumerate(requests):
        prompt, pixels = build_input(request)
        path = folder / f"{number}.rgb"
        path.write_bytes(pixels.array().tobytes())
        image = [str(path), pixels.width, pixels.height]
        saved.append({"prompt": prompt, "image": image, "sampling": asdict(request.sampling)})
    return saved


def main(source: Path, target: Path) -> None:
    """Read the requests, answer them, write the answers."""
    from vllm import LLM

    job = json.loads(source.read_text())
    bans = any(one["sampling"]["ngram"] for one in job["requests"])
    arguments = {"logits_processors": [STOCK_NGRAM], **job["arguments"]} if bans else job["arguments"]
    llm = LLM(disable_log_stats=False, **arguments)
    if not all(module.startswith("vllm.") for module in llm.collective_rpc(_find_model_module)):
        sys.exit("the model class is not vLLM's own, so there is nothing to compare with: VLLM_PLUGINS had no effect")
    begin = _find_missing_begin(llm.get_tokenizer())
    prompts = [_build_prompt(one, begin) for one in job["requests"]]
    params = [_build_params(one) for one in job["requests"]]
    pairs = [*zip(prompts, params, strict=True)][: job["alone"]]
    alone = [_answer(llm, [prompt], [one])[0] for prompt, one in pairs]
    together, half = _answer(llm, prompts, params), len(prompts) // 2
    halves = _answer(llm, prompts[:half], params[:half]) + _answer(llm, prompts[half:], params[half:])
    preemptions = sum(metric.value for metric in llm.get_metrics() if metric.name == PREEMPTIONS)
    answers = {"alone": alone, "together": together, "halves": halves}
    target.write_text(json.dumps({**answers, "preemptions": preemptions}))


def _find_model_module(worker: Any) -> str:
    """The module of the model's class; runs in vLLM's worker."""
    return type(worker.model_runner.get_model()).__module__


def _find_missing_begin(tokenizer: Any) -> str:
    """The token with which DeepSeek's prompts begin, if vLLM does not add it: that depends on the tokenizer's files."""
    has_begin = tokenizer.encode("a")[:1] == [tokenizer.bos_token_id]
    return "" if has_begin else str(tokenizer.bos_token or "")


def _build_prompt(request: Mapping[str, Any], begin: str) -> dict[str, Any]:
    from PIL import Image

    path, width, height = request["image"]
    image = Image.frombytes("RGB", (width, height), Path(path).read_bytes())
    prompt = request["prompt"]
    if prompt.startswith("<image>"):  # no chat, which names all of its tokens
        prompt = begin + prompt
    return {"prompt": prompt, "multi_modal_data": {"image": image}}


def _build_params(request: Mapping[str, Any]) -> Any:
    from vllm import SamplingParams

    sampling = Sampling(**request["sampling"])
    ban = {
        "ngram_size": sampling.ngram,
        "window_size": sampling.window,
        "whitelist_token_ids": sampling.allowed_tokens,
    }
    return SamplingParams(
        temperature=0,
        max_tokens=sampling.max_tokens,
        repetition_penalty=sampling.repetition_penalty,
        detokenize=False,
        extra_args=ban if sampling.ngram else None,
    )


def _answer(llm: Any, prompts: list[Any], params: list[Any]) -> list[tuple[str, str]]:
    """Each answer and why it ended. The text is decoded at once, not by vLLM's incremental decoder."""
    answers = []
    for output in llm.generate(prompts, params, use_tqdm=False):
        answer = output.outputs[0]
        tokens = answer.token_ids[:-1] if answer.finish_reason == "stop" else answer.token_ids
        text = llm.get_tokenizer().decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        answers.append((text, answer.finish_reason))
    return answers


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

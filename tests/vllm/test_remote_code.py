"""The hf engine with models whose folder contains their code: what `infer` gets, and what becomes of its sampling."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.vllm import tiny
from twopass.engines.hf import models
from twopass.engines.interface import Prompt, Sampling
from twopass.errors import EngineError
from twopass.families.unlimited import PROMPTS
from twopass.pages.shared_pixels import Pixels

pytestmark = pytest.mark.filterwarnings("default")  # torch and Transformers emit warnings that we cannot fix
FAVOURITE, OTHER, EOS = 7, 8, 1


class ScriptedCode:
    """The code in Unlimited-OCR's folder: `infer` has its own sampling; `generate` likes one token."""

    def __init__(self) -> None:
        self.inferred: dict[str, Any] = {}
        self.options: dict[str, Any] = {}

    def infer(
        self, tokenizer: Any, prompt: str = "", image_file: str = "", output_path: str = "", base_size: int = 1024,
        image_size: int = 640, crop_mode: bool = True, eval_mode: bool = False, max_length: int = 32768,
        no_repeat_ngram_size: int = 0, ngram_window: int = 0, temperature: float = 0.0,
    ) -> str:  # fmt: skip
        views = (base_size, image_size, crop_mode)
        with Image.open(image_file) as image:
            self.inferred = {"prompt": prompt, "views": views, "size": image.size, "eval": eval_mode}
        self.generate(
            torch.tensor([[0, 5, 6]]), do_sample=temperature > 0, temperature=None, max_length=max_length,
            eos_token_id=EOS, use_cache=True,
        )  # fmt: skip
        return "not used: the completion has more"

    def generate(self, input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
        self.options = options
        for _ in range(options["max_new_tokens"]):
            scores = torch.zeros(1, 16)
            scores[0, FAVOURITE], scores[0, OTHER] = 2, 1
            for processor in options["logits_processor"]:
                scores = processor(input_ids, scores)
            input_ids = torch.cat([input_ids, scores.argmax(1, keepdim=True)], dim=1)
        return input_ids


class Numbers:
    """A tokenizer whose tokens are numbers."""

    eos_token_id, pad_token_id = EOS, 2

    def decode(self, tokens: list[int], skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))


def ask(mode: str, sampling: Sampling) -> tuple[ScriptedCode, models.Completion]:
    code, image = ScriptedCode(), Pixels(3, 2, data=bytes(18))
    model = models.RemoteCodeModel(code, Numbers())
    return code, model.answer(Prompt("p", PROMPTS["document"], image, mode=mode, sampling=sampling), lambda: False)


def test_the_code_gets_the_prompt_the_page_and_the_mode() -> None:
    """As in the README of the model: 1024 and 640 with tiles, or 1024 without; the page is not changed."""
    views = {mode: ask(mode, Sampling(max_tokens=1))[0].inferred for mode in ("gundam", "base")}

    assert views["gundam"] == {
        "prompt": "<image>document parsing.", "views": (1024, 640, True), "size": (3, 2), "eval": True,
    }  # fmt: skip
    assert views["base"]["views"] == (1024, 1024, False)


def test_the_sampling_is_that_of_the_prompt() -> None:
    """The ban acts on the answer, although `infer` is not told of it, and the answer ends at the limit."""
    code, completion = ask("gundam", Sampling(max_tokens=6, ngram=2, window=128, allowed_tokens=()))

    assert (completion.text, completion.finish_reason) == ("7 7 8 7 0 7", "length")
    assert (completion.tokens_in, completion.tokens_out) == (3, 6)
    assert (code.options["no_repeat_ngram_size"], code.options["do_sample"], code.options["eos_token_id"]) == (
        0, False, EOS,
    )  # fmt: skip


def test_unlimited_ocr_gets_the_tokenizer_of_its_file(tmp_path: Path) -> None:
    """Transformers 5 replaces parts of the class that the configuration names, and spaces become letters."""
    folder = tiny.write_checkpoint(tmp_path, "UnlimitedOCRForCausalLM")
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"tokenizer_class": "LlamaTokenizerFast"}))

    tokenizer = models.load_tokenizer("unlimited_ocr", folder)

    assert tokenizer.decode(tokenizer.encode("two words\n", add_special_tokens=False)) == "two words\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_error_names_the_model(tmp_path: Path) -> None:
    """The folder's code moves tensors to CUDA."""
    with pytest.raises(EngineError, match="the code of unlimited_ocr in the model's folder requires an NVIDIA GPU"):
        models.load("unlimited_ocr", tmp_path, "bfloat16")

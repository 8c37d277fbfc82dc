"""A model folder in, something that answers prompts out, as Transformers has it.

DeepSeek-OCR-2 is a class of Transformers' own. DeepSeek-OCR is not: its folder brings its code, written for
Transformers 4.46 and CUDA, and `infer` of that code is asked. That half follows the published code and has
not been run: it needs the weights and a GPU.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
import transformers
from PIL import Image

from twopass.engines.hf.ngram_ban import banned
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.errors import Code, EngineError
from twopass.pages.shared_pixels import Pixels

DTYPES = ("float32", "bfloat16", "float16")
IMAGE = "<image>"
LOOK_EVERY = 64  # tokens between two questions whether the answer loops
WHOLE_TOKENS, TILE_TOKENS = 256, 144  # of DeepSeek-OCR-2; one more separates them from the text
UNCUT = 1 << 20  # a tile larger than any picture: nothing is cut
CUT = frozenset({"auto", "gundam"})  # modes that look at tiles

# mode -> base_size, image_size, crop_mode of `infer` (the official README)
INFER_MODES: Mapping[str, tuple[int, int, bool]] = {
    "auto": (1024, 640, True),
    "gundam": (1024, 640, True),
    "tiny": (512, 512, False),
    "small": (640, 640, False),
    "base": (1024, 1024, False),
    "large": (1280, 1280, False),
}
# of the hub's language_config, what the native class knows too
TEXT_FIELDS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
    "moe_intermediate_size", "n_group", "topk_group", "topk_method", "routed_scaling_factor", "rms_norm_eps",
    "bos_token_id", "eos_token_id",
)  # fmt: skip
# The vision encoder is not in the hub's config: its size is written into the official code (deepencoderv2).
ENCODER = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip


class Model(Protocol):
    """What `load` gives."""

    def answer(self, prompt: Prompt, given_up: Callable[[], bool]) -> Completion: ...


def load(model: str, folder: Path, dtype: str) -> Model:
    """The weights of a folder, ready to be asked; raises EngineError."""
    if dtype not in DTYPES:
        raise EngineError(Code.ENGINE_DEAD, f"engine hf knows no {dtype}; DTYPE is one of {', '.join(DTYPES)}")
    try:
        return (Native if model == "deepseek_ocr2" else Remote).load(folder, getattr(torch, dtype))
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        message = f"Transformers {transformers.__version__} cannot load {folder}: {error}"
        raise EngineError(Code.ENGINE_DEAD, message) from error


def device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


# ---- DeepSeek-OCR-2 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Native:
    """Transformers' own class, from the hub's folder or from one that Transformers saved."""

    model: Any
    tokenizer: Any
    pictures: Any

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype) -> Native:
        model = transformers.DeepseekOcr2ForConditionalGeneration.from_pretrained(
            folder, config=native_config(folder), dtype=dtype, local_files_only=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        # The Pillow one: torchvision's resizing is a shade away from what the model was trained on.
        return cls(model.eval().to(device()), tokenizer, transformers.DeepseekOcr2ImageProcessorPil())

    def answer(self, prompt: Prompt, given_up: Callable[[], bool]) -> Completion:
        ids, seen = self._inputs(prompt)
        context = self.model.config.text_config.max_position_embeddings
        limit = min(prompt.sampling.max_tokens or context, context - len(ids))
        if limit < 1:
            return Completion("", "error")
        watcher = Watcher(len(ids), self.tokenizer, prompt, given_up)
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=torch.tensor([ids], device=self.model.device),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=self.model.device),
                max_new_tokens=limit,
                **seen,
                **watcher.arguments,
            )
        return watcher.completion(output[0].tolist())

    def _inputs(self, prompt: Prompt) -> tuple[list[int], dict[str, Any]]:
        """The prompt's ids, with a place for every token of the picture, and the picture."""
        cut = prompt.mode in CUT
        options = {"max_patches": prompt.max_crops} if cut else {"tile_size": UNCUT}
        seen = self.pictures(picture(prompt.image), return_tensors="pt", **options)
        tiles = int(sum(seen.pop("num_local_patches")))
        views = {name: value.to(self.model.device, self.model.dtype) for name, value in seen.items()}
        places = WHOLE_TOKENS + TILE_TOKENS * tiles + 1
        return ids_of(self.tokenizer, prompt.text, places), {**views, "num_local_patches": [tiles]}


def native_config(folder: Path) -> Any:
    """The native class's configuration, also for the hub's folder, which has one for its own code."""
    told = json.loads((folder / "config.json").read_text())
    if told.get("model_type") == "deepseek_ocr2":
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    text = {name: told["language_config"][name] for name in TEXT_FIELDS if name in told["language_config"]}
    dense = told["language_config"].get("first_k_dense_replace", 1)
    text["mlp_layer_types"] = ["dense" if n < dense else "sparse" for n in range(text["num_hidden_layers"])]
    return transformers.DeepseekOcr2Config(text_config=text, vision_config={"encoder_config": ENCODER})


def ids_of(tokenizer: Any, text: str, places: int) -> list[int]:
    """BOS, what stands before the picture, its places, what comes after; no chat markers."""
    before, found, after = text.partition(IMAGE)
    if not found:
        before, after = "", f"\n{text}"
    image = tokenizer.convert_tokens_to_ids(IMAGE)
    encoded = [tokenizer.encode(part, add_special_tokens=False) for part in (before, after)]
    return [tokenizer.bos_token_id, *encoded[0], *[image] * places, *encoded[1]]


# ---- DeepSeek-OCR -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Remote:
    """The code that lies in the model's folder."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype) -> Remote:
        if device() != "cuda":
            raise ValueError("DeepSeek-OCR's own code wants an NVIDIA GPU")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True, local_files_only=True)
        model = transformers.AutoModel.from_pretrained(
            folder, trust_remote_code=True, use_safetensors=True, torch_dtype=dtype, local_files_only=True
        )
        return cls(model.eval().cuda(), tokenizer)

    def answer(self, prompt: Prompt, given_up: Callable[[], bool]) -> Completion:
        base, size, crop = INFER_MODES[prompt.mode]
        with tempfile.TemporaryDirectory() as folder, self._sampled(prompt, given_up) as heard:
            file = os.path.join(folder, "page.png")
            picture(prompt.image).save(file, compress_level=1)
            self.model.infer(
                self.tokenizer, prompt=prompt.text, image_file=file, output_path=folder,
                base_size=base, image_size=size, crop_mode=crop, eval_mode=True,
            )  # fmt: skip
        return heard[-1]

    @contextmanager
    def _sampled(self, prompt: Prompt, given_up: Callable[[], bool]) -> Iterator[list[Completion]]:
        """`infer` has its own sampling written into it; for its time, `generate` hears ours."""
        heard = [Completion("", "error")]
        plain = self.model.generate

        def generate(input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
            watcher = Watcher(input_ids.shape[1], self.tokenizer, prompt, given_up)
            limit = {"max_new_tokens": prompt.sampling.max_tokens} if prompt.sampling.max_tokens else {}
            output = plain(input_ids, **{**options, "no_repeat_ngram_size": 0, **watcher.arguments, **limit})
            heard.append(watcher.completion(output[0].tolist()))
            return output

        self.model.generate = generate
        try:
            yield heard
        finally:
            del self.model.generate  # the class's own again


# ---- both ---------------------------------------------------------------------------------------


def picture(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels.array())


class Watcher:
    """What `generate` asks after every token: which may not come next, and whether to go on."""

    def __init__(self, tokens_in: int, tokenizer: Any, prompt: Prompt, given_up: Callable[[], bool]) -> None:
        self._tokens_in = tokens_in
        self._tokenizer = tokenizer
        self._sampling = prompt.sampling
        self._watch = prompt.watch
        self._given_up = given_up
        self._ended: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        return {
            **_chance(self._sampling),
            "logits_processor": [self.ban],
            "stopping_criteria": [self.enough],
            "eos_token_id": self._tokenizer.eos_token_id,
            "pad_token_id": self._tokenizer.pad_token_id,
        }

    def ban(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """The n-gram ban, over what was said and not over the prompt."""
        sampling = self._sampling
        window = max(sampling.window, sampling.ngram)
        said = input_ids[0, self._tokens_in :][-window:].tolist()
        if never := banned(said, sampling.ngram, sampling.window, sampling.allowed_tokens):
            scores[:, list(never)] = -float("inf")
        return scores

    def enough(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Whether nobody waits any more, or the answer loops."""
        count = input_ids.shape[1] - self._tokens_in
        if self._given_up():
            self._ended = "abort"
        elif self._watch and count % LOOK_EVERY == 0 and self._watch(self._text(input_ids[0].tolist())):
            self._ended = "loop"
        return torch.full((input_ids.shape[0],), self._ended is not None, device=input_ids.device)

    def completion(self, output: list[int]) -> Completion:
        stopped = output[-1] == self._tokenizer.eos_token_id
        reason = self._ended or ("stop" if stopped else "length")
        return Completion(self._text(output), reason, self._tokens_in, len(output) - self._tokens_in)

    def _text(self, output: list[int]) -> str:
        said = output[self._tokens_in :]
        if said and said[-1] == self._tokenizer.eos_token_id:
            said = said[:-1]
        return str(self._tokenizer.decode(said, skip_special_tokens=False))


def _chance(sampling: Sampling) -> dict[str, Any]:
    return {"do_sample": True, "temperature": sampling.temperature} if sampling.temperature else {"do_sample": False}

"""Load DeepSeek-OCR, DeepSeek-OCR-2 and Unlimited-OCR with Transformers and generate answers.

Transformers has a class for DeepSeek-OCR-2. It has none for the others, whose folders contain code for CUDA and for
Transformers 4.46 (DeepSeek-OCR) or 4.57 (Unlimited-OCR); this module calls `infer` of that code. That half follows the
published code and has not been run with it: it needs the weights and a GPU. It cuts images into as many tiles as that
code allows (Unlimited-OCR: 32), whatever a prompt says.
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

from twopass.engines.hf.ngram_ban import find_banned_tokens
from twopass.engines.interface import Completion, Prompt, Sampling
from twopass.errors import Code, EngineError, InvalidSetting
from twopass.models import find_model
from twopass.pages.shared_pixels import Pixels

DTYPES = ("float32", "bfloat16", "float16")
IMAGE_TOKEN = "<image>"
LOOP_CHECK_TOKENS = 64  # tokens generated between two loop checks
GLOBAL_VIEW_TOKENS, TILE_TOKENS = 256, 144  # of DeepSeek-OCR-2; one more token separates the image from the text
NO_TILING = 1 << 20  # a tile size larger than any image, so that nothing is cut into tiles
TILED_MODES = frozenset({"auto", "gundam"})  # modes that add tiles to the global view

# mode -> base_size, image_size, crop_mode of `infer` (the official README)
INFER_MODES: Mapping[str, tuple[int, int, bool]] = {
    "auto": (1024, 640, True),
    "gundam": (1024, 640, True),
    "tiny": (512, 512, False),
    "small": (640, 640, False),
    "base": (1024, 1024, False),
    "large": (1280, 1280, False),
}
# the fields of the hub's language_config that the class of Transformers has too
TEXT_CONFIG_FIELDS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
    "num_key_value_heads", "max_position_embeddings", "n_routed_experts", "n_shared_experts", "num_experts_per_tok",
    "moe_intermediate_size", "n_group", "topk_group", "topk_method", "routed_scaling_factor", "rms_norm_eps",
    "bos_token_id", "eos_token_id",
)  # fmt: skip
# The hub's config lacks the vision encoder; its sizes are constants in the official code (deepencoderv2).
ENCODER_CONFIG = {
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14,
    "num_key_value_heads": 2, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}  # fmt: skip


class LoadedModel(Protocol):
    """A model that answers prompts. `is_cancelled` is polled at every token and ends the answer."""

    def answer(self, prompt: Prompt, is_cancelled: Callable[[], bool]) -> Completion: ...


def load(model: str, folder: Path, dtype: str) -> LoadedModel:
    """Load a model's weights from a folder; raises EngineError, and InvalidSetting for an unknown DTYPE."""
    if dtype not in DTYPES:
        message = f"engine hf does not support {dtype}; DTYPE is one of {', '.join(DTYPES)}"
        raise InvalidSetting(Code.INVALID_SETTING, message)
    try:
        if find_model(model).hf == "class":
            return TransformersModel.load(folder, getattr(torch, dtype))
        return RemoteCodeModel.load(model, folder, getattr(torch, dtype))
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        message = f"Transformers {transformers.__version__} cannot load {folder}: {error}"
        raise EngineError(Code.ENGINE_DEAD, message) from error


def choose_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


# ---- DeepSeek-OCR-2 -----------------------------------------------------------------------------


@dataclass(frozen=True)
class TransformersModel:
    """DeepSeek-OCR-2 as a class of Transformers, from the hub's folder or one that Transformers saved."""

    model: Any
    tokenizer: Any
    image_processor: Any

    @classmethod
    def load(cls, folder: Path, dtype: torch.dtype) -> TransformersModel:
        model = transformers.DeepseekOcr2ForConditionalGeneration.from_pretrained(
            folder, config=build_config(folder), dtype=dtype, local_files_only=True
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        # The Pillow processor: torchvision's resizing differs slightly from the one the model was trained with.
        return cls(model.eval().to(choose_device()), tokenizer, transformers.DeepseekOcr2ImageProcessorPil())

    def answer(self, prompt: Prompt, is_cancelled: Callable[[], bool]) -> Completion:
        ids, image_inputs = self._build_inputs(prompt)
        context = self.model.config.text_config.max_position_embeddings
        limit = min(prompt.sampling.max_tokens or context, context - len(ids))
        if limit < 1:
            return Completion("", "error")
        control = _GenerationControl(len(ids), self.tokenizer, prompt, is_cancelled)
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=torch.tensor([ids], device=self.model.device),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long, device=self.model.device),
                max_new_tokens=limit,
                **image_inputs,
                **control.arguments,
            )
        return control.build_completion(output[0].tolist())

    def _build_inputs(self, prompt: Prompt) -> tuple[list[int], dict[str, Any]]:
        """The prompt's token ids, with a placeholder for every image token, and the image's tensors."""
        options = {"max_patches": prompt.max_crops} if prompt.mode in TILED_MODES else {"tile_size": NO_TILING}
        tensors = self.image_processor(to_image(prompt.image), return_tensors="pt", **options)
        tiles = int(sum(tensors.pop("num_local_patches")))
        views = {name: value.to(self.model.device, self.model.dtype) for name, value in tensors.items()}
        image_tokens = GLOBAL_VIEW_TOKENS + TILE_TOKENS * tiles + 1
        return _build_input_ids(self.tokenizer, prompt.text, image_tokens), {**views, "num_local_patches": [tiles]}


def build_config(folder: Path) -> Any:
    """The configuration for the class of Transformers; the hub's config.json is converted to it."""
    config = json.loads((folder / "config.json").read_text())
    if config.get("model_type") == "deepseek_ocr2":
        return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    language = config["language_config"]
    text = {name: language[name] for name in TEXT_CONFIG_FIELDS if name in language}
    dense = language.get("first_k_dense_replace", 1)
    text["mlp_layer_types"] = ["dense" if n < dense else "sparse" for n in range(text["num_hidden_layers"])]
    return transformers.DeepseekOcr2Config(text_config=text, vision_config={"encoder_config": ENCODER_CONFIG})


def _build_input_ids(tokenizer: Any, text: str, image_tokens: int) -> list[int]:
    """BOS, the text before the image, the image's placeholders and the text after it, without chat markers."""
    before, found, after = text.partition(IMAGE_TOKEN)
    if not found:
        before, after = "", f"\n{text}"
    image = tokenizer.convert_tokens_to_ids(IMAGE_TOKEN)
    encoded = [tokenizer.encode(part, add_special_tokens=False) for part in (before, after)]
    return [tokenizer.bos_token_id, *encoded[0], *[image] * image_tokens, *encoded[1]]


# ---- DeepSeek-OCR, Unlimited-OCR ----------------------------------------------------------------


@dataclass(frozen=True)
class RemoteCodeModel:
    """DeepSeek-OCR or Unlimited-OCR, run by the code in the model's folder."""

    model: Any
    tokenizer: Any

    @classmethod
    def load(cls, model_name: str, folder: Path, dtype: torch.dtype) -> RemoteCodeModel:
        if choose_device() != "cuda":
            raise ValueError(f"the code of {model_name} in the model's folder requires an NVIDIA GPU")
        tokenizer = load_tokenizer(model_name, folder)
        model = transformers.AutoModel.from_pretrained(
            folder, trust_remote_code=True, use_safetensors=True, torch_dtype=dtype, local_files_only=True
        )
        return cls(model.eval().cuda(), tokenizer)

    def answer(self, prompt: Prompt, is_cancelled: Callable[[], bool]) -> Completion:
        base, size, crop = INFER_MODES[prompt.mode]
        with tempfile.TemporaryDirectory() as folder, self._override_sampling(prompt, is_cancelled) as completions:
            file = os.path.join(folder, "page.png")
            to_image(prompt.image).save(file, compress_level=1)
            self.model.infer(
                self.tokenizer, prompt=prompt.text, image_file=file, output_path=folder,
                base_size=base, image_size=size, crop_mode=crop, eval_mode=True,
            )  # fmt: skip
        return completions[-1]

    @contextmanager
    def _override_sampling(self, prompt: Prompt, is_cancelled: Callable[[], bool]) -> Iterator[list[Completion]]:
        """Replace `generate` while `infer`, which hard-codes its sampling, runs; collects the completions."""
        completions = [Completion("", "error")]
        original = self.model.generate

        def generate(input_ids: torch.Tensor, **options: Any) -> torch.Tensor:
            control = _GenerationControl(input_ids.shape[1], self.tokenizer, prompt, is_cancelled)
            limit = {"max_new_tokens": prompt.sampling.max_tokens} if prompt.sampling.max_tokens else {}
            output = original(input_ids, **{**options, "no_repeat_ngram_size": 0, **control.arguments, **limit})
            completions.append(control.build_completion(output[0].tolist()))
            return output

        self.model.generate = generate
        try:
            yield completions
        finally:
            del self.model.generate  # restores the method of the class


# ---- both ---------------------------------------------------------------------------------------


def load_tokenizer(model: str, folder: Path) -> Any:
    """Load a folder's tokenizer; that of Unlimited-OCR by its file.

    Transformers 5 gives the class that its configuration names another decoder, which prints bytes as letters (Ġ, Ċ).
    """
    if find_model(model).has_plain_tokenizer:
        return transformers.PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
    return transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True, local_files_only=True)


def to_image(pixels: Pixels) -> Image.Image:
    return Image.fromarray(pixels.array())


class _GenerationControl:
    """Controls `generate` after every token: bans repeated n-grams and ends looping or cancelled answers."""

    def __init__(self, tokens_in: int, tokenizer: Any, prompt: Prompt, is_cancelled: Callable[[], bool]) -> None:
        self._tokens_in = tokens_in
        self._tokenizer = tokenizer
        self._sampling = prompt.sampling
        self._loop_check = prompt.loop_check
        self._is_cancelled = is_cancelled
        self._stop_reason: str | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for `generate`."""
        return {
            **_build_sampling_arguments(self._sampling),
            "logits_processor": [self.ban_repeated_ngrams],
            "stopping_criteria": [self.should_stop],
            "eos_token_id": self._tokenizer.eos_token_id,
            "pad_token_id": self._tokenizer.pad_token_id,
        }

    def ban_repeated_ngrams(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Apply the n-gram ban to the generated tokens, without those of the prompt."""
        sampling = self._sampling
        window = max(sampling.window, sampling.ngram)
        tokens = input_ids[0, self._tokens_in :][-window:].tolist()
        if banned := find_banned_tokens(tokens, sampling.ngram, sampling.window, sampling.allowed_tokens):
            scores[:, list(banned)] = -float("inf")
        return scores

    def should_stop(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """For each sequence, whether the prompt was cancelled or the answer loops."""
        count = input_ids.shape[1] - self._tokens_in
        if self._is_cancelled():
            self._stop_reason = "abort"
        elif self._has_loop(count, input_ids):
            self._stop_reason = "loop"
        return torch.full((input_ids.shape[0],), self._stop_reason is not None, device=input_ids.device)

    def _has_loop(self, count: int, input_ids: torch.Tensor) -> bool:
        if not self._loop_check or count % LOOP_CHECK_TOKENS:
            return False
        return self._loop_check(self._decode(input_ids[0].tolist()))

    def build_completion(self, output: list[int]) -> Completion:
        is_complete = output[-1] == self._tokenizer.eos_token_id
        reason = self._stop_reason or ("stop" if is_complete else "length")
        return Completion(self._decode(output), reason, self._tokens_in, len(output) - self._tokens_in)

    def _decode(self, output: list[int]) -> str:
        tokens = output[self._tokens_in :]
        if tokens and tokens[-1] == self._tokenizer.eos_token_id:
            tokens = tokens[:-1]
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))


def _build_sampling_arguments(sampling: Sampling) -> dict[str, Any]:
    return {"do_sample": True, "temperature": sampling.temperature} if sampling.temperature else {"do_sample": False}

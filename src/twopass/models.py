"""The models that twopass runs: one row each, from which everything else about a model follows.

A row says where the weights are, which family of prompts and grammars reads the answers, how the model sees an image,
and what it can do. Settings, downloads, families, engines, the image and the documents take it from here. A new model
of an existing family is one row. The image's build imports this file, too: it needs no library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

from twopass.errors import Code, InvalidSetting

_TOKEN_SIDE = 64  # pixels: a square of this side becomes one token of a view (patches of 16, four to a side)
MIN_TILES = 2
_PROMPT = "{prompt}"
TOKENIZERS = ("tokenizer.json", "tokenizer.model")


@dataclass(frozen=True)
class Weights:
    """A repository on the hub, pinned to the revision that families, engines and images were built for.

    `licence` is what its model card states. A complete folder has one of the files in `preprocessing`.
    """

    repo: str
    revision: str
    licence: str
    preprocessing: tuple[str, ...] = TOKENIZERS

    @property
    def cache_path(self) -> Path:
        """The model's folder, relative to a hub cache."""
        return Path(f"models--{self.repo.replace('/', '--')}", "snapshots", self.revision)


class Structure(StrEnum):
    """What finds the regions of a page: the model itself, a layout detector, or the detector where the model failed.

    `auto` is what the model needs: the detector for models that read single regions, the model itself for others.
    """

    AUTO = "auto"
    MODEL = "model"
    DETECTOR = "detector"
    FALLBACK = "fallback"


# ---- how a model sees an image -------------------------------------------------------------------


class ModeSpec(NamedTuple):
    """A resolution mode: the side of the global view in pixels, and whether the image is also cut into tiles."""

    base_size: int
    is_tiled: bool = False


class TileGrid(NamedTuple):
    """Columns and rows of tiles; (1, 1) means that the image is not cut."""

    columns: int
    rows: int

    @property
    def tile_count(self) -> int:
        return self.columns * self.rows if self.columns * self.rows > 1 else 0


@dataclass(frozen=True)
class VisionSpec:
    """How a model that reads pages cuts an image: modes, a tile's side in pixels, whether a token ends every row.

    `default_crops` are the most tiles of an image unless a request says otherwise, `most_crops` those it may ask for,
    `official_crops` those of the official code.
    """

    modes: Mapping[str, ModeSpec]
    tile_size: int
    newlines: bool
    default_crops: int = 6
    most_crops: int = 9
    official_crops: int = 6

    def with_crops(self, most: int | None) -> VisionSpec:
        """The same with this many tiles at most, if the model was trained with more than it gets."""
        if most is None or self.official_crops <= self.default_crops:
            return self
        return replace(self, default_crops=most, most_crops=most)

    def choose_grid(self, width: int, height: int, mode: str, max_crops: int) -> TileGrid:
        """Choose how an image of this size is cut in this mode."""
        if not self.modes[mode].is_tiled or max(width, height) <= self.tile_size:
            return TileGrid(1, 1)
        return _closest_grid(width, height, self.tile_size, max_crops)

    def grid_size(self, grid: TileGrid) -> tuple[int, int]:
        """Width and height of all tiles together, to which the image is stretched before it is cut."""
        return self.tile_size * grid.columns, self.tile_size * grid.rows

    def is_upscaled(self, width: int, height: int, grid: TileGrid) -> bool:
        """Whether the tiles have more pixels than an image of this size."""
        return grid.tile_count * self.tile_size**2 > width * height

    def count_tokens(self, mode: str, grid: TileGrid) -> int:
        """Count the image tokens in the prompt: those of the tiles, of the global view, and one separator."""
        columns, rows = (grid.columns, grid.rows) if grid.tile_count else (0, 0)
        base_tokens, tile_tokens = self.modes[mode].base_size // _TOKEN_SIDE, self.tile_size // _TOKEN_SIDE
        return (
            self._count_grid_tokens(base_tokens, base_tokens)
            + self._count_grid_tokens(tile_tokens * columns, tile_tokens * rows)
            + 1
        )

    def _count_grid_tokens(self, columns: int, rows: int) -> int:
        return rows * (columns + (1 if self.newlines and columns else 0))

    def nbytes(self, mode: str, grid: TileGrid) -> int:
        """Size of all views of one image, at three bytes a pixel."""
        return 3 * (self.modes[mode].base_size ** 2 + grid.tile_count * self.tile_size**2)

    @property
    def max_nbytes(self) -> int:
        """The largest size that the views of one image can have, in any mode."""
        return max(
            self.nbytes(name, TileGrid(1, self.most_crops if mode.is_tiled else 1)) for name, mode in self.modes.items()
        )

    @property
    def max_tokens(self) -> int:
        """The most image tokens of one image: in a column of tiles, each row of tokens has one for its end."""
        return max(
            self.count_tokens(name, TileGrid(1, self.most_crops if mode.is_tiled else 1))
            for name, mode in self.modes.items()
        )


@lru_cache(maxsize=4096)
def _closest_grid(width: int, height: int, tile_size: int, max_crops: int) -> TileGrid:
    """The grid closest in aspect ratio; on a tie, the larger one if the image has pixels for half of it."""
    best, least = TileGrid(1, 1), float("inf")
    for grid in _candidate_grids(max_crops):
        difference = abs(width / height - grid.columns / grid.rows)
        if difference < least:
            best, least = grid, difference
        elif difference == least and width * height > 0.5 * tile_size * tile_size * grid.columns * grid.rows:
            best = grid
    return best


@lru_cache
def _candidate_grids(max_crops: int) -> tuple[TileGrid, ...]:
    """Sorted by number of tiles; equal numbers keep the set's order, as in the official code: ties depend on it."""
    pairs = {
        (columns, rows)
        for most in range(MIN_TILES, max_crops + 1)
        for columns in range(1, most + 1)
        for rows in range(1, most + 1)
        if MIN_TILES <= columns * rows <= max_crops
    }
    return tuple(TileGrid(*pair) for pair in sorted(pairs, key=lambda pair: pair[0] * pair[1]))


@dataclass(frozen=True)
class ResizeRule:
    """The size of a crop: sides are multiples of `multiple`, and it has between `least` and `most` pixels."""

    multiple: int
    least: int
    most: int
    max_aspect: float = 200.0

    def apply(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that the model sees; a crop that is too long for its width is shortened to the limit."""
        width, height = max(width, 1), max(height, 1)
        width = min(width, math.floor(height * self.max_aspect))
        height = min(height, math.floor(width * self.max_aspect))
        scale = max(1.0, self.multiple / width, self.multiple / height)
        across, down = (
            max(self.multiple, round(side * scale / self.multiple) * self.multiple) for side in (width, height)
        )
        if across * down > self.most:
            factor = math.sqrt(width * height * scale * scale / self.most)
            across, down = (self._floor(side * scale / factor) for side in (width, height))
        elif across * down < self.least:
            factor = math.sqrt(self.least / (width * height * scale * scale))
            across, down = (
                math.ceil(side * scale * factor / self.multiple) * self.multiple for side in (width, height)
            )
        return across, down

    def _floor(self, side: float) -> int:
        return max(self.multiple, math.floor(side / self.multiple) * self.multiple)


@dataclass(frozen=True)
class CropInput:
    """How a model that reads one region at a time sees a crop: its size, its patches, and the chat that carries it.

    `chat` is its chat template's text for one image and a prompt, with one `image_token` for the image; `token_ids` are
    those of the special tokens in it, in the published vocabulary. The model cuts a crop into squares of `patch`
    pixels, and `merge` by `merge` patches become one token. With `is_merged_order`, the patches of one token follow
    each other; otherwise patches are in rows.
    """

    chat: str
    image_token: str
    token_ids: Mapping[str, int]
    resize: ResizeRule
    is_merged_order: bool
    patch: int = 14
    merge: int = 2

    def format_prompt(self, text: str) -> str:
        return self.chat.replace(_PROMPT, text)


# ---- what fits a GPU -----------------------------------------------------------------------------


class Preset(NamedTuple):
    """Engine settings for a GPU's memory."""

    sequences: int
    batched_tokens: int
    memory: float = 0.9  # share of the GPU's memory
    context: int = 8192
    dtype: str = "bfloat16"
    quantization: str | None = None
    eager: bool = False  # neither torch.compile nor CUDA graphs


# For models that read pages: 6.2 GiB of weights in bfloat16, 60 KiB of KV cache per token, activations.
PAGE_PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        # float32, because bfloat16 takes three times as long on a CPU
        "cpu": Preset(8, 2048, context=4096, dtype="float32", eager=True),
        # 8-bit weights, because bfloat16 weights alone would fill the GPU; with 0.9 of 8,188 MiB, 13 were free at last,
        # with 0.85, 541. 2,700 tokens of cache for each prompt
        "8": Preset(16, 2048, 0.85, 4096, quantization="fp8"),
        "16": Preset(32, 4096),
        "24": Preset(100, 8192),
        # 34.2 GB × 0.9 - 6.7 GB of weights - 2 GB of graphs and activations: 2,200 tokens of cache for each prompt
        "32": Preset(160, 8192),
        "48": Preset(256, 8192),
        "80": Preset(256, 8192),
        "141": Preset(512, 8192, 0.88),  # 512 answers do not need more cache; above 0.9 the memory alert fires
    }
)
# For models that read regions, each of a few hundred tokens: 2 GB of weights, 18 KiB (PaddleOCR-VL) or 64 KiB (GLM-OCR)
# of KV cache per token.
REGION_PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "cpu": Preset(8, 8192, context=16384, dtype="float32", eager=True),
        "8": Preset(64, 8192, 0.9, context=16384),
        "16": Preset(256, 8192, 0.9, context=16384),
        "24": Preset(384, 8192, 0.9, context=16384),
        "32": Preset(512, 8192, 0.9, context=16384),
        "48": Preset(512, 16384, 0.9, context=16384),
        "80": Preset(1024, 32768, 0.9, context=16384),
        "141": Preset(1024, 65536, 0.88, context=16384),
    }
)
# also accepted as PRESET
GPU_NAMES: Mapping[str, str] = MappingProxyType({"rtx4060": "8", "rtx4090": "24", "rtx5090": "32"})
PRESET_NAMES = (*PAGE_PRESETS, *GPU_NAMES)


def _choose_preset_name(name: str, memory_gb: float) -> str:
    """The size that a value of PRESET means; `auto` selects the largest for this much GPU memory, 0 for none."""
    if name != "auto":
        return GPU_NAMES.get(name, name)
    # a GPU of 80 GB reports 79.6
    fitting = [size for size in PAGE_PRESETS if size != "cpu" and int(size) <= memory_gb + 1]
    return fitting[-1] if fitting else "8" if memory_gb else "cpu"


def preset_memory_gb(name: str) -> int:
    """The GPU memory that a preset is made for; 0 for cpu and auto."""
    size = GPU_NAMES.get(name, name)
    return int(size) if size.isdigit() else 0


# ---- the models ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """One model. `family` names its prompts and grammar; `image` says whether it reads pages or single regions.

    `is_drafted`: its answers repeat the text of a page, so that text can draft them. `reads_figures`: its authors
    document prompts for figures. `context_factor` multiplies the preset's context. `has_windowed_attention`: answers
    see the prompt and their own last tokens only. `hf` is how engine hf runs it: a class of Transformers, or the code
    in its folder; `has_plain_tokenizer`: Transformers must load the tokenizer by its file.
    """

    name: str
    weights: Weights
    family: str
    image: VisionSpec | CropInput
    is_drafted: bool = False
    reads_figures: bool = False
    context_factor: int = 1
    has_windowed_attention: bool = False
    hf: Literal["class", "code"] | None = None
    has_plain_tokenizer: bool = False

    @property
    def title(self) -> str:
        return self.weights.repo.rpartition("/")[2]

    @property
    def reads_regions(self) -> bool:
        """Whether it reads one region at a time, and needs a layout detector in front of it."""
        return isinstance(self.image, CropInput)

    @property
    def structures(self) -> tuple[Structure, ...]:
        """What may find the regions of its pages; the first one is what it needs."""
        return (
            (Structure.DETECTOR,) if self.reads_regions else (Structure.MODEL, Structure.DETECTOR, Structure.FALLBACK)
        )

    @property
    def has_ngram_ban(self) -> bool:
        """Whether its official code bans repeated n-grams; readers were not trained with a ban."""
        return not self.reads_regions

    @property
    def vision(self) -> VisionSpec:
        """How it cuts pages; only for a model that reads pages."""
        assert isinstance(self.image, VisionSpec)
        return self.image

    @property
    def crop_input(self) -> CropInput:
        """How it sees crops; only for a model that reads regions."""
        assert isinstance(self.image, CropInput)
        return self.image

    @property
    def takes_max_tiles(self) -> bool:
        """Whether MAX_TILES applies: it was trained with more tiles than it gets."""
        return not self.reads_regions and self.vision.official_crops > self.vision.default_crops

    @property
    def presets(self) -> Mapping[str, Preset]:
        return REGION_PRESETS if self.reads_regions else PAGE_PRESETS

    def find_preset(self, name: str, memory_gb: float) -> Preset:
        """The preset that a value of PRESET means; `auto` depends on the GPU's memory, 0 for none."""
        return self.presets[_choose_preset_name(name, memory_gb)]


_MODES_V2 = {"base": ModeSpec(1024), "gundam": ModeSpec(1024, True)}
_MODES_V1 = {
    "tiny": ModeSpec(512),
    "small": ModeSpec(640),
    "base": ModeSpec(1024),
    "large": ModeSpec(1280),
    "gundam": ModeSpec(1024, True),
}

_ROWS = (
    Model(
        name="deepseek_ocr",
        weights=Weights("deepseek-ai/DeepSeek-OCR", "9f30c71f441d010e5429c532364a86705536c53a", "MIT"),
        family="deepseek",
        image=VisionSpec(_MODES_V1, tile_size=640, newlines=True),
        is_drafted=True,
        reads_figures=True,
        hf="code",
    ),
    Model(
        name="deepseek_ocr2",
        weights=Weights("deepseek-ai/DeepSeek-OCR-2", "aaa02f3811945a91062062994c5c4a3f4c0af2b0", "Apache-2.0"),
        family="deepseek",
        image=VisionSpec(_MODES_V2, tile_size=768, newlines=False),
        is_drafted=True,
        hf="class",
    ),
    Model(
        name="unlimited_ocr",
        # the revision with which 92.4 on OmniDocBench v1.6 was published
        weights=Weights("baidu/Unlimited-OCR", "84757cb04b4d9b74adc65dc31cdf52fca7dc2a97", "MIT"),
        family="unlimited",
        # Twelve of the 32 tiles of training (infer.py): views of 18 instead of 42 MB, which every shared buffer can
        # hold, and for a page in 16:9 of any size 483 instead of 3,113 image tokens. A4 and Letter up to 225 dpi are
        # cut as with 32, and accuracy with more than twelve is published only for 32.
        image=VisionSpec(_MODES_V2, 640, newlines=True, default_crops=12, most_crops=12, official_crops=32),
        # Its prompts may have 3,800 tokens, and its cache, which holds the prompt and the last 128 tokens, does not
        # grow with the answer.
        context_factor=2,
        has_windowed_attention=True,
        is_drafted=True,
        hf="code",
        has_plain_tokenizer=True,
    ),
    Model(
        name="glm_ocr",
        weights=Weights("zai-org/GLM-OCR", "2e85a62840ccac27daa451df36c736c4636b8628", "MIT"),
        family="glm_ocr",
        # chat_template.jinja for one image and one text, with a generation prompt; without `enable_thinking` nothing
        # follows it. Its ids: 59248 59250 59253 10 59256 59280… 59257 …text… 59254 10. The image processor compares its
        # limits, 12,544 and 9,633,792, with the pixels of two frames: a picture is one frame shown twice.
        image=CropInput(
            chat="[gMASK]<sop><|user|>\n<|begin_of_image|><|image|><|end_of_image|>{prompt}<|assistant|>\n",
            image_token="<|image|>",
            token_ids={
                "[gMASK]": 59248,
                "<sop>": 59250,
                "<|user|>": 59253,
                "<|assistant|>": 59254,
                "<|begin_of_image|>": 59256,
                "<|end_of_image|>": 59257,
                "<|image|>": 59280,
            },
            resize=ResizeRule(multiple=28, least=6_272, most=4_816_896),
            is_merged_order=True,
        ),
    ),
    Model(
        name="paddleocr_vl",
        weights=Weights("PaddlePaddle/PaddleOCR-VL-1.5", "2a4195faa5e7914c12f2fc601d72c81caf8d2da5", "Apache-2.0"),
        family="paddleocr_vl",
        # chat_template.jinja of PaddlePaddle/PaddleOCR-VL and PaddleOCR-VL-1.5; sizes as in PaddleX's pipeline.
        image=CropInput(
            chat="<|begin_of_sentence|>User: <|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>{prompt}\nAssistant:\n",
            image_token="<|IMAGE_PLACEHOLDER|>",
            token_ids={
                "<|begin_of_sentence|>": 100273,
                "<|IMAGE_PLACEHOLDER|>": 100295,
                "<|IMAGE_START|>": 101305,
                "<|IMAGE_END|>": 101306,
            },
            resize=ResizeRule(multiple=28, least=112_896, most=1_003_520),
            is_merged_order=False,
        ),
    ),
)
MODELS: Mapping[str, Model] = MappingProxyType({row.name: row for row in _ROWS})
DEFAULT_MODEL = _ROWS[0].name
DETECTOR = "pp_doclayout_v3"  # the layout detector in front of models that read regions
DETECTOR_WEIGHTS = Weights(
    "PaddlePaddle/PP-DocLayoutV3_safetensors",
    "3ec586e86ed9245a567bb13395a3db64d5c077cc",
    "Apache-2.0",
    preprocessing=("preprocessor_config.json",),
)
WEIGHTS: Mapping[str, Weights] = MappingProxyType(
    {**{row.name: row.weights for row in _ROWS}, DETECTOR: DETECTOR_WEIGHTS}
)


def name_models(is_meant: Callable[[Model], bool], last: str = "and", by_title: bool = False) -> str:
    """The names of these models, or their titles, as a sentence lists them."""
    *others, final = [row.title if by_title else row.name for row in _ROWS if is_meant(row)]
    return f"{', '.join(others)} {last} {final}" if others else final


def find_model(name: str) -> Model:
    """The row of a model; raises InvalidSetting for an unknown name."""
    if name not in MODELS:
        raise InvalidSetting(Code.INVALID_SETTING, f"unknown model {name}; MODEL is one of: {', '.join(MODELS)}")
    return MODELS[name]


def list_weights(name: str, structure: str = Structure.AUTO) -> Mapping[str, Weights]:
    """The weights that a model needs, by the name of their folder; the detector may be named, too."""
    if name == DETECTOR:
        return {name: DETECTOR_WEIGHTS}
    found = {name: find_model(name).weights}
    return found if resolve_structure(structure, name) is Structure.MODEL else {**found, DETECTOR: DETECTOR_WEIGHTS}


def resolve_structure(wanted: str, reader: str) -> Structure:
    """What `wanted` means for a model, never AUTO; raises InvalidSetting if they do not fit together.

    `reader` may also be a family without a model, such as that of the cpu engine, which finds regions itself.
    """
    if wanted not in set(Structure):
        message = f"unknown structure {wanted}; STRUCTURE is one of {', '.join(Structure)}"
        raise InvalidSetting(Code.INVALID_SETTING, message)
    model = MODELS.get(reader)
    supported = model.structures if model else (Structure.MODEL,)
    if wanted in (Structure.AUTO, *supported):
        return supported[0] if wanted == Structure.AUTO else Structure(wanted)
    advice = (
        "it reads single regions and needs the layout detector in front of it: set STRUCTURE=detector or auto"
        if model
        else "it finds regions itself and cannot read those of the layout detector: set STRUCTURE=auto"
    )
    raise InvalidSetting(Code.INVALID_SETTING, f"STRUCTURE={wanted} does not fit {reader}: {advice}")

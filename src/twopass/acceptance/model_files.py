"""Stage (a): the files of the weights, the tokenizer, and the token ids of prompts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twopass.acceptance import reference
from twopass.acceptance.checks import Check, judge, skip
from twopass.engines import hub
from twopass.engines.vllm.images import IMAGE, TiledImages
from twopass.models import find_model

STAGE = "a"
# Ids in the vocabulary of DeepSeek-OCR and DeepSeek-OCR-2. The n-gram ban of the official code names those of cells.
TOKEN_IDS = {
    "<image>": 128815,
    "<td>": 128821,
    "</td>": 128822,
    "<｜begin▁of▁sentence｜>": 0,
    "<｜end▁of▁sentence｜>": 1,
}
SAMPLE = "Two  spaces, a\ttab\nand 3 lines\n\n# Überschrift 数据 한국어  \nE = mc² \\( \\alpha \\) <td>1,5 %</td>"
_NEEDED = ("config.json", "tokenizer.json", "tokenizer_config.json")  # beside the weights, which are complete
_WRONG_TOKENIZER = (
    "the tokenizer is not the one in tokenizer.json: Transformers 5 loads some DeepSeek models with a class for "
    "another kind of vocabulary, which drops spaces (transformers#45488). Use the versions of the container image, and "
    "config.json and tokenizer_config.json as they are on the hub"
)
WRONG_FILES = "download the model again with `twopass download-weights`, or correct MODEL or MODEL_DIR"


def check_files(model: str, folder: Path) -> list[Check]:
    """Compare the files with the checksums of the pinned revision, which are in checksums.json or in the hub's cache.

    Reads every file: about a second per gigabyte.
    """
    pinned = find_model(model).weights
    required = f"{pinned.repo}@{pinned.revision[:12]}"
    missing = [name for name in _NEEDED if not (folder / name).is_file()]
    complete = judge(STAGE, "files", not missing, f"missing: {', '.join(missing)}" if missing else "complete",
                     ", ".join(_NEEDED), WRONG_FILES)  # fmt: skip
    if missing or not (verified := hub.verify(folder)):
        reason = f"the checksums of the files in {folder} are not known: {WRONG_FILES}"
        return [complete, skip(STAGE, "checksums", reason)]
    revision = judge(
        STAGE, "revision", verified.revision == pinned.revision, verified.revision[:12], required, WRONG_FILES
    )
    value = ", ".join(verified.corrupt) or f"{verified.count} files"
    files = judge(STAGE, "checksums", not verified.corrupt, value, "no file differs", WRONG_FILES)
    return [complete, revision, files]


def check_special_tokens(tokenizer: Any, expected_ids: Mapping[str, int]) -> list[Check]:
    """Compare the ids of special tokens with those of the published vocabulary."""
    wrong = {
        token: found
        for token, expected in expected_ids.items()
        if (found := tokenizer.convert_tokens_to_ids(token)) != expected
    }
    value = wrong or "ids as expected"
    return [judge(STAGE, "special tokens", not wrong, value, dict(expected_ids), _WRONG_TOKENIZER)]


def check_ends(tokenizer: Any) -> Check:
    """Compare the tokens for the beginning and the end of a text with those of the DeepSeek line."""
    found = tokenizer.bos_token_id, tokenizer.eos_token_id
    return judge(STAGE, "begin and end of text", found == (0, 1), found, (0, 1), _WRONG_TOKENIZER)


def check_tokenizer(tokenizer: Any, folder: Path) -> list[Check]:
    """Compare the loaded tokenizer with tokenizer.json: a sample text there and back."""
    plain = reference.load_plain_tokenizer(folder)
    ids = tokenizer.encode(SAMPLE, add_special_tokens=False)
    decoded = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    name = type(tokenizer).__name__
    return [
        judge(STAGE, "encoding", ids == plain.encode(SAMPLE, add_special_tokens=False).ids,
              f"{len(ids)} tokens by {name}", "those of tokenizer.json", _WRONG_TOKENIZER),
        judge(STAGE, "round trip", decoded == SAMPLE, repr(decoded[:30]), "every space and line break",
              _WRONG_TOKENIZER),
    ]  # fmt: skip


def check_prompts(tokenizer: Any, folder: Path, prompts: Sequence[str]) -> list[Check]:
    """Compare the ids of every prompt with the official ones: BOS, and tokenizer.json's ids around the image."""
    plain = reference.load_plain_tokenizer(folder)

    def encode(text: str) -> list[int]:
        return list(plain.encode(text, add_special_tokens=False).ids)

    wrong = []
    for prompt in prompts:
        before, _, after = prompt.partition(IMAGE)
        official = [TOKEN_IDS["<｜begin▁of▁sentence｜>"], *encode(before)], TOKEN_IDS["<image>"], encode(after)
        if TiledImages.tokenize(tokenizer, prompt) != official:
            wrong.append(prompt)
    return [judge(STAGE, "prompts", not wrong, wrong or f"{len(prompts)} prompts", "official ids", _WRONG_TOKENIZER)]


def check_prompt_lengths(tokenizer: Any, recorded: Sequence[tuple[str, int]]) -> Iterator[Check]:
    """Compare the lengths of prompts with those that the official code reported, in tokens without the image."""
    for prompt, expected in dict.fromkeys(recorded):
        before, _, after = TiledImages.tokenize(tokenizer, prompt)
        count = len(before) + len(after)
        yield judge(STAGE, f"length of {prompt!r}", count == expected, count, expected, _WRONG_TOKENIZER)

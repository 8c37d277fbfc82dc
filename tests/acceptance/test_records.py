"""Recorded answers in a folder: written, loaded, replayed, and errors that say what is wrong."""

from __future__ import annotations

import json
import shutil
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from twopass.acceptance import records
from twopass.acceptance.records import RECORDS, SHIPPED, Record
from twopass.engines.interface import Prompt
from twopass.engines.replay import ReplayEngine
from twopass.errors import Code, SourceError
from twopass.families.deepseek import PROMPTS
from twopass.families.registry import FAMILIES
from twopass.models import MODELS
from twopass.pages.shared_pixels import Pixels

FORM = SHIPPED / "simple_form.png"

names = st.from_regex(r"[a-zA-Z0-9_-]{1,8}", fullmatch=True)
counts = st.integers(0, 9000)
sizes = st.integers(1, 9000)


def strategy_of_records(name: str) -> st.SearchStrategy[Record]:
    return st.builds(
        Record,
        name=st.just(name),
        image=st.just(FORM.name),
        answer=st.just(f"{name}.txt"),
        prompt=st.text(min_size=1),
        mode=st.sampled_from(sorted(FAMILIES["deepseek_ocr"].modes)),
        width=sizes,
        height=sizes,
        columns=sizes,
        rows=sizes,
        image_tokens=sizes,
        prompt_tokens=counts,
        output_tokens=counts,
        finish_reason=st.none() | st.sampled_from(["stop", "length", "loop"]),
        temperature=st.floats(0, 2),
        max_tokens=sizes,
        ngram=counts,
        window=st.none() | sizes,
        allowed_tokens=st.lists(counts).map(tuple),
        model=st.text(),
        revision=st.text(),
        made_with=st.text(),
        folder=st.just(SHIPPED),
        text=st.text(),
    )


lists_of_records = st.lists(names, min_size=1, max_size=4, unique=True).flatmap(
    lambda chosen: st.tuples(*(strategy_of_records(name) for name in chosen))
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the shipped records."""
    return Path(shutil.copytree(SHIPPED, tmp_path / "records"))


def edit(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the list of records.json in place."""
    content = json.loads((folder / RECORDS).read_text())
    change(content["records"])
    (folder / RECORDS).write_text(json.dumps(content))


@given(lists_of_records)
def test_what_is_written_is_loaded_again(written: tuple[Record, ...]) -> None:
    """Every field and the exact text of every answer survive, line ends included; only the folder is another."""
    with tempfile.TemporaryDirectory() as folder:
        records.write(Path(folder), written)

        loaded = records.load(Path(folder))

    assert loaded == tuple(record.model_copy(update={"folder": Path(folder)}) for record in written)


def test_the_shipped_records_are_those_of_the_real_model() -> None:
    """Six answers to three images, at the pinned revision, with the prompts that this family sends."""
    loaded = records.load()

    assert len(loaded) == 6 and len({record.image for record in loaded}) == 3
    assert {record.revision for record in loaded} == {FAMILIES["deepseek_ocr"].revision}
    assert {record.prompt for record in loaded} == {PROMPTS["document"], PROMPTS["free"]}
    assert all(record.sampling.ngram == 20 and record.sampling.window == 8192 for record in loaded)
    assert all(record.sampling.allowed_tokens == () for record in loaded)
    assert [record.name for record in loaded if record.finish_reason is None] == ["simple_form.grounding_markdown"]


@pytest.mark.parametrize("record", records.load(), ids=lambda record: record.name)
def test_images_are_cut_as_the_official_code_cut_them(record: Record) -> None:
    """The tiles and the number of image tokens are those that were recorded."""
    image = record.read_image()

    grid = MODELS["deepseek_ocr"].vision.choose_grid(image.width, image.height, record.mode, Prompt.max_crops)

    assert grid == (record.columns, record.rows)
    assert MODELS["deepseek_ocr"].vision.count_tokens(record.mode, grid) == record.image_tokens
    assert image.array().shape == (record.height, record.width, 3)


def test_the_shipped_folder_states_its_licences() -> None:
    """Beside the records are the licences and what is known of their origin; every image is named."""
    licence, origin = (SHIPPED / "LICENSE").read_text(), (SHIPPED / "README.md").read_text()

    assert "CC0" in licence and "MIT License" in licence and "CrispStrobe/CrispEmbed" in licence
    assert all(record.image in origin and record.revision in origin for record in records.load())


def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    """A folder without records gives SOURCE_NOT_FOUND and the path of the missing file."""
    with pytest.raises(SourceError, match=f"{tmp_path}/{RECORDS}.*--record") as caught:
        records.load(tmp_path)

    assert caught.value.code is Code.SOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda entries: entries[1].pop("width"), "records.1.width: Field required"),
        (lambda entries: entries[0].update(rows=0), "records.0.rows: Input should be greater than 0"),
        (lambda entries: entries[2].update(tile="x"), "records.2.tile: Extra inputs are not permitted"),
        (lambda entries: entries[0].update(image="../x.png"), "records.0.image: .*name of a file in the same folder"),
        (lambda entries: entries[0].update(answer=RECORDS), "records.0.answer: .*name of a file in the same folder"),
        (lambda entries: entries[0].update(answer=entries[0]["image"]), "records.0.answer: .* occurs twice"),
        (lambda entries: entries[1].update(name=entries[0]["name"]), "records.1.name: .* occurs twice"),
        (lambda entries: entries.clear(), "records: Tuple should have at least 1 item"),
    ],
    ids=["missing", "range", "unknown", "path", "own file", "image as answer", "name twice", "none"],
)
def test_a_wrong_field_is_named(folder: Path, change: Callable[[list[dict[str, Any]]], object], message: str) -> None:
    """The error has the code DAMAGED and names records.json, the number of the record and the field."""
    edit(folder, change)

    with pytest.raises(SourceError, match=f"{RECORDS}: {message}") as caught:
        records.load(folder)

    assert caught.value.code is Code.DAMAGED


def test_a_file_that_is_no_json_is_named(folder: Path) -> None:
    """A file of another kind is an error about records.json, not a traceback."""
    (folder / RECORDS).write_bytes(b"\xff\xfe not JSON")

    with pytest.raises(SourceError, match=f"{RECORDS}: Invalid JSON"):
        records.load(folder)


@pytest.mark.parametrize("name", ["simple_form.png", "simple_form.free_ocr.txt"])
def test_a_missing_file_is_named(folder: Path, name: str) -> None:
    """An image or an answer that records.json names must be there."""
    (folder / name).unlink()

    with pytest.raises(SourceError, match=name) as caught:
        records.load(folder)

    assert caught.value.code is Code.SOURCE_NOT_FOUND


def test_an_answer_of_another_encoding_is_named(folder: Path) -> None:
    """An answer that is not UTF-8 was damaged after it was written."""
    (folder / "simple_form.free_ocr.txt").write_bytes(b"Input\xff")

    with pytest.raises(SourceError, match=r"simple_form.free_ocr.txt: byte 5 is not UTF-8"):
        records.load(folder)


def test_an_image_of_another_size_is_not_compared(folder: Path) -> None:
    """Another image under the recorded name would give a comparison that means nothing."""
    shutil.copyfile(folder / "simple_form.png", folder / "german_official_print.jpg")
    record = next(record for record in records.load(folder) if record.image == "german_official_print.jpg")

    with pytest.raises(SourceError, match="452 × 317 pixels, but records.json says 1920 × 2518"):
        record.read_image()


def test_images_of_one_name_are_refused_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    """One folder cannot hold two images of one name; the message says which one to rename."""
    one = records.load()[0]
    other = records.load(folder)[1]

    with pytest.raises(SourceError, match="two images are named commons_test_ocr_document.jpg; rename"):
        records.write(tmp_path / "new", [one, other])

    assert not (tmp_path / "new").exists()


def test_a_folder_can_be_written_again(folder: Path) -> None:
    """Records that were loaded from a folder can be written back to it: its images are not copied onto themselves."""
    loaded = records.load(folder)

    records.write(folder, loaded[:2])

    assert records.load(folder) == loaded[:2]


async def test_recorded_answers_are_replayed() -> None:
    """An engine of their folder answers each of their prompts with the recorded completion."""
    loaded = records.load()
    engine = ReplayEngine.from_folder(records.SHIPPED, "deepseek_ocr")

    answers = [await engine.generate(Prompt(record.prompt_id, record.prompt, Pixels(1, 1))) for record in loaded]

    assert [(answer.text, answer.tokens_out) for answer in answers] == [(r.text, r.output_tokens) for r in loaded]
    assert engine.family == "deepseek_ocr"


def test_the_package_contains_the_records() -> None:
    """pyproject.toml names every file of the package that is not Python, so that wheel and image have it."""
    package = ROOT / "src" / "twopass"
    tables = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [(ROOT / "src" / name.replace(".", "/"), pattern) for name in tables for pattern in tables[name]]
    named = {path for folder, pattern in patterns for path in folder.glob(pattern)}
    data = {path for path in package.rglob("*.*") if path.suffix not in (".py", ".pyc") and path.is_file()}

    assert SHIPPED / RECORDS in data
    assert data <= named and SHIPPED / "LICENSE" in named

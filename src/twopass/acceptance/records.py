"""Recorded answers of the model, kept in a folder beside their images, to compare later answers with.

The folder has `records.json` with the fields of every Record. Its `image` and `answer` name files of the same folder.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from twopass.engines import replay
from twopass.engines.interface import Completion, Sampling
from twopass.errors import Code, SourceError
from twopass.pages import pillow_image, source_files
from twopass.pages.shared_pixels import Pixels
from twopass.values import Value

SHIPPED = Path(__file__).parent / "records" / "deepseek-ocr"
RECORDS = replay.RECORDS
MAX_PIXELS = 250_000_000  # of a recorded image, as MAX_IMAGE_PIXELS


def _require_file_name(name: str) -> str:
    if Path(name).name != name or name in ("", ".", "..", RECORDS):
        raise ValueError("must be the name of a file in the same folder")
    return name


FileName = Annotated[str, AfterValidator(_require_file_name)]


class _Entry(Value):
    """A record as records.json has it."""

    name: str = Field(pattern=r"^[\w.-]+$")
    image: FileName
    answer: FileName
    prompt: str = Field(min_length=1)
    mode: str
    width: int = Field(gt=0)
    height: int = Field(gt=0)
    columns: int = Field(gt=0)
    rows: int = Field(gt=0)
    image_tokens: int = Field(gt=0)
    prompt_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    finish_reason: str | None = None
    temperature: float = Field(0.0, ge=0)
    max_tokens: int = Field(gt=0)
    ngram: int = Field(ge=0)
    window: int | None = Field(None, gt=0)
    allowed_tokens: tuple[int, ...] = ()
    model: str
    revision: str
    made_with: str


class _File(Value):
    records: tuple[_Entry, ...] = Field(min_length=1)


class Record(_Entry):
    """What a model answered to one prompt about one image.

    `width` and `height` of the image are in pixels; `columns` and `rows` count its tiles, 1 and 1 without tiles.
    `prompt_tokens` are all tokens of the prompt, `image_tokens` those of them that stand for the image. None as
    `finish_reason` means unknown, None as `window` that the n-gram ban covered the whole answer. `folder` has the files
    `image` and `answer`; `text` is the answer.
    """

    folder: Path
    text: str

    @property
    def image_path(self) -> Path:
        return self.folder / self.image

    @property
    def prompt_id(self) -> str:
        return replay.record_prompt_id(self.name)

    @property
    def sampling(self) -> Sampling:
        window = self.window or self.max_tokens
        return Sampling(self.temperature, self.max_tokens, self.ngram, window, self.allowed_tokens)

    @property
    def completion(self) -> Completion:
        return Completion(self.text, self.finish_reason or "stop", self.prompt_tokens, self.output_tokens)

    def read_image(self) -> Pixels:
        """Decode the image as the official code does: turned as its EXIF data say, without transparency."""
        pixels = read_pixels(self.image_path)
        if (pixels.width, pixels.height) != (self.width, self.height):
            stated, actual = f"{self.width} × {self.height}", f"{pixels.width} × {pixels.height}"
            message = (
                f"{self.image} has {actual} pixels, but {RECORDS} says {stated} for {self.name}: restore the image"
            )
            raise SourceError(Code.DAMAGED, message)
        return pixels


def read_pixels(path: Path) -> Pixels:
    """Decode an image file. Raises SourceError."""
    from PIL import ImageOps

    with source_files.open_image(str(path), MAX_PIXELS) as image:
        array = pillow_image.to_rgb_array(ImageOps.exif_transpose(image))
    return Pixels(array.shape[1], array.shape[0], data=array.tobytes())


def load(folder: Path = SHIPPED) -> tuple[Record, ...]:
    """Load the records of a folder. Raises SourceError, which names the file and the field that is wrong."""
    try:
        entries = _File.model_validate_json(_read(folder / RECORDS)).records
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in problem["loc"])
        message = f"{folder / RECORDS}: {field + ': ' if field else ''}{problem['msg']}; correct it, or record again"
        raise SourceError(Code.DAMAGED, message) from None
    _require_distinct_names(folder, entries)
    return tuple(_complete(folder, entry) for entry in entries)


def _complete(folder: Path, entry: _Entry) -> Record:
    if not (folder / entry.image).is_file():
        raise _report_missing(folder / entry.image)
    try:
        text = _read(folder / entry.answer).decode()
    except UnicodeDecodeError as error:
        message = f"{folder / entry.answer}: byte {error.start} is not UTF-8; restore the file, or record again"
        raise SourceError(Code.DAMAGED, message) from None
    return Record(**entry.model_dump(), folder=folder, text=text)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise _report_missing(path) from None


def _report_missing(path: Path) -> SourceError:
    message = f"{path} is missing or cannot be read; name a folder that was written with --record"
    return SourceError(Code.SOURCE_NOT_FOUND, message)


def _require_distinct_names(folder: Path, entries: Sequence[_Entry]) -> None:
    """Names and files of answers must differ, or one record would hide or overwrite another."""
    used = {entry.image for entry in entries}
    for number, entry in enumerate(entries):
        for field, value in (("name", f"record {entry.name}"), ("answer", entry.answer)):
            if value in used:
                message = f"{folder / RECORDS}: records.{number}.{field}: {value} occurs twice; rename one"
                raise SourceError(Code.DAMAGED, message)
            used.add(value)


def write(folder: Path, records: Sequence[Record]) -> None:
    """Write records with their answers and copies of their images. `load` returns them with the new folder.

    Raises SourceError for records that one folder cannot hold, before anything is written.
    """
    images = {record.image: record.image_path for record in records}
    if other := next((record for record in records if images[record.image] != record.image_path), None):
        message = f"two images are named {other.image}; rename {other.image_path}"
        raise SourceError(Code.SOURCE_UNSUPPORTED, message)
    _require_distinct_names(folder, records)
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in images.items():
        if not (folder / name).exists() or not path.samefile(folder / name):
            shutil.copyfile(path, folder / name)
    for record in records:
        (folder / record.answer).write_bytes(record.text.encode("utf-8", "replace"))  # a lone surrogate has no UTF-8
    entries = [record.model_dump(exclude={"folder", "text"}) for record in records]
    # The list last: a folder whose writing was interrupted cannot be loaded.
    (folder / RECORDS).write_text(_File.model_validate({"records": entries}).model_dump_json(indent=1) + "\n", "utf-8")

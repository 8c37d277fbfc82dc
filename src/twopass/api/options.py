"""The keyword arguments of `read`, `read_pages` and `submit`: fields of a job, parsed as those of a delivered job."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict
from uuid import uuid4

from twopass.errors import Code, InvalidJob, suggest
from twopass.formats import registry
from twopass.job import EntryPoint, Format, Job
from twopass.settings import Settings

Source = str | os.PathLike[str] | bytes
Location = str | os.PathLike[str]


class ReadOptions(TypedDict, total=False):
    """Fields of a job; docs/contract.md describes each."""

    pages: str | None
    password: str | None
    language: str | None
    formats: Sequence[str]
    markdown: Mapping[str, Any] | None
    chunks: Mapping[str, Any] | None
    mode: str
    dpi: int
    max_crops: int | None
    pass2: str
    figure_descriptions: str
    task: str
    prompt: str | None
    sampling: Mapping[str, Any]
    failed_pages: Mapping[str, Any]
    deadline_s: float | None
    resume: bool
    s3: Mapping[str, Any] | None


class SubmitOptions(ReadOptions, total=False):
    """Fields of a job for an endpoint."""

    inline: Sequence[str] | None


def parse_job(source: Source, output: Location | None, options: ReadOptions, settings: Settings) -> Job:
    """Make the job that reads one source. Its DocJSON is always written. Raises InvalidJob naming the option."""
    if unknown := set(options) - set(ReadOptions.__annotations__):
        known = list(ReadOptions.__annotations__)
        advice = suggest(min(unknown), known) or f"; the options are {', '.join(known)}"
        message = f"{min(unknown)}: not an option here{advice}"
        raise InvalidJob(Code.INVALID_JOB, message)
    fields = {**options, "source": _to_uri(source), "output": output and os.fspath(output), "inline": []}
    job = Job.parse({"id": f"read-{uuid4().hex[:12]}", "input": fields}, settings, EntryPoint.LOCAL)
    formats = tuple(name for name in Format if name in {*job.formats, Format.DOCJSON})
    registry.check_installed(job.formats_needed)  # before a worker starts
    # A default bucket is for workers: a program's files go only where it says.
    return job.model_copy(update={"formats": formats, "output": job.output if output else None})


def _to_uri(source: Source) -> str:
    if isinstance(source, bytes):
        return f"data:application/octet-stream;base64,{base64.b64encode(source).decode()}"
    return os.fspath(source)

"""The functions that programs call. What they run on is imported at the first call, so that importing them is free."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Unpack

if TYPE_CHECKING:
    from twopass.api.document import Document
    from twopass.api.reading import Location, ReadOptions, Source, SubmitOptions
    from twopass.fleet.campaign import DocumentOutcome
    from twopass.settings import Settings


def read(
    source: Source,
    *,
    output: Location | None = None,
    settings: Settings | None = None,
    **options: Unpack[ReadOptions],
) -> Document:
    """Read a document: a path, the bytes of a file, or an https://, s3:// or data: address.

    `output` is a folder, or s3://bucket/prefix/, that keeps the files and every page that was read: the same call then
    reads only what is missing. Without it nothing is written. `settings` chooses the engine; by default the
    environment does. The engine is started once for all calls with equal settings.

    A page that cannot be read is in the document's `problems`. Raises TwopassError, with a `code`, if there is no
    document: InvalidJob for a wrong option, SourceError for a source that cannot be used, and others.
    """
    from twopass.api import reading

    return reading.read(source, output, settings, options)


def read_pages(
    source: Source,
    *,
    output: Location | None = None,
    settings: Settings | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[Document]:
    """Read a document as `read` does, and yield each page as soon as it is finished, as a document of one page.

    Pages may come in any order. What only the whole document shows is missing: running headers, heading levels,
    paragraphs that continue on another page. If the loop is left early, reading stops.
    """
    from twopass.api import reading

    return reading.read_pages(source, output, settings, options)


def submit(
    sources: Location | Sequence[Location],
    *,
    endpoint: str,
    output: str | None = None,
    upload: str | None = None,
    folder: Location | None = None,
    api_key: str | None = None,
    settings: Settings | None = None,
    **options: Unpack[SubmitOptions],
) -> list[DocumentOutcome]:
    """Read documents with the workers of a RunPod endpoint, as `twopass submit` does; returns each one's outcome.

    `sources` are files, folders, s3://bucket/prefix/, and addresses of documents. `endpoint` is an id or a complete
    address, `api_key` by default RUNPOD_API_KEY of the environment. `output` is s3://bucket/prefix/ for artefacts; by
    default the endpoint's own. Local files go to `upload`, s3://bucket/prefix/, or into the job if they are small.

    With a `folder`, the artefacts are saved there, and the same call picks up the jobs of an interrupted one.

    A document's failure is in its outcome. Raises InvalidJob for a wrong option, SourceError for a missing file,
    InvalidSetting if another call uses the folder, and EndpointError if the endpoint refuses the jobs or cannot be
    reached.
    """
    from twopass.api import submitting

    return submitting.submit(sources, endpoint, output, upload, folder, api_key, settings, options)

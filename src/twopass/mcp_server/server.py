"""The tools of `twopass mcp`, served with the SDK of the Model Context Protocol over standard input and output."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Generator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from anyio import CancelScope
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import Field

from twopass.api.document import Document
from twopass.api.reading import ReadOptions
from twopass.errors import Code, RequestError, TwopassError
from twopass.mcp_server import library
from twopass.mcp_server.library import Library, Passage
from twopass.result import AuditSum
from twopass.runtime import scratch
from twopass.settings import Settings
from twopass.telemetry.progress import Sender, Tracker
from twopass.version import VERSION
from twopass.worker import hide_memory

T = TypeVar("T")

_MAX_TEXT = 100_000  # characters of one answer: about 25,000 tokens; the rest is asked for by page or section
_MAX_SIDE = 2_000  # pixels of a picture; models scale larger ones down themselves
_MAX_LISTED = 500  # files, pages and sections of one answer
_MAX_SNIPPET = 800  # characters of a chunk that was found
_PROGRESS_INTERVAL_S, _PROGRESS_DRAIN_S = 1.0, 1.0
_INSTRUCTIONS = (
    "Reads PDFs and page images of the allowed folders, and documents by address, with OCR. Begin with list_files. "
    "read_document takes seconds for each page and reports its progress; what was read stays, so the same call goes on "
    "where an earlier one ended. Use the document's id for everything else, and name pages when you quote: each answer "
    "says of which page it is. A page that could not be read is in list_pages."
)
_READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_FETCHES = ToolAnnotations(read_only_hint=True, open_world_hint=True)

DocumentId = Annotated[str, Field(description="the id that read_document answered")]
PageNumber = Annotated[int | None, Field(description="number of a page, from 1")]
SectionId = Annotated[str | None, Field(description="id of a section, such as s003")]
ElementId = Annotated[str, Field(description="id of an element, such as p0003-e002")]


def serve(settings: Settings, folders: Sequence[Path], output: Path | None) -> None:
    """Serve until standard input ends. Without an output, what was read is deleted then."""
    hide_memory(settings)
    with ExitStack() as stack:
        kept = output or stack.enter_context(scratch.open_folder())
        build_server(Library([folder.resolve() for folder in folders], kept, settings)).run("stdio")


def build_server(shelf: Library) -> MCPServer[Any]:
    """The server with its tools. The engine starts with the first document that has to be read."""
    server: MCPServer[Any] = MCPServer(
        "twopass", version=VERSION, instructions=_INSTRUCTIONS, log_level="WARNING", subscriptions=False
    )
    _add_reading(server, shelf)
    _add_contents(server, shelf)
    return server


@contextmanager
def _answer_errors() -> Generator[None]:
    """Answer our errors as `CODE: message`; the SDK withholds all others and logs them."""
    try:
        yield
    except TwopassError as error:
        raise ToolError(str(error)) from None


def _add_reading(server: MCPServer[Any], shelf: Library) -> None:
    @server.tool(annotations=_READS)
    async def list_files() -> dict[str, Any]:
        """List the files below the allowed folders that can be read, and those that cannot, with the reason."""
        with _answer_errors():
            found = await shelf.list_files()
        files = [document.location for document in found.documents]
        skipped = [f"{file.name}: {file.reason}" for file in found.skipped]
        return {
            "folders": [str(folder) for folder in shelf.folders],
            **_cut("files", files),
            **_cut("not_readable", skipped),
        }

    @server.tool(annotations=_FETCHES)
    async def read_document(
        ctx: Context,
        source: Annotated[str, Field(description="path of a file below an allowed folder, or https:// or s3://")],
        pages: Annotated[str | None, Field(description='only these pages, such as "1-5,8"')] = None,
        password: Annotated[str | None, Field(description="of an encrypted PDF or office file")] = None,
        language: Annotated[str | None, Field(description='such as "de"; by default it is recognized')] = None,
    ) -> dict[str, Any]:
        """Read a document, or find it among those that were read. Answers its id, its states and its sections."""
        options: ReadOptions = {"pages": pages, "password": password, "language": language}
        with _answer_errors():
            send = partial(_report, ctx)
            async with Sender(send, _PROGRESS_INTERVAL_S, _PROGRESS_DRAIN_S) as sender:
                document = await _run_to_end(shelf.read(source, options, Tracker(sender.offer)))
        return _describe(document)


async def _run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """The result of the work. A cancellation is passed on, and raised only when the work has ended.

    The work is a task of its own: a cancellation of the SDK, which uses anyio, also ends each further wait of the call.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        with CancelScope(shield=True):
            await asyncio.wait({task})
        raise


async def _report(ctx: Context, progress: dict[str, Any]) -> None:
    message = f"{progress['phase']}: {progress['pages_done']} of {progress['pages_total']} pages"
    # By its number, because a notification has to be larger than the one before; the message is for people.
    await ctx.report_progress(progress["percent"] + progress["seq"] / 1e9, 100, message)


def _describe(document: Document) -> dict[str, Any]:
    audit = AuditSum.of(document.pages)
    sections = [
        {"id": section.id, "title": " ".join(filter(None, (section.number, section.title))), "level": section.level}
        for section in library.walk(document.sections)
    ]
    return {
        "document": document.id,
        "source": document.source.uri,
        "status": document.status,
        "title": document.meta.title,
        "page_count": document.source.page_count,
        "pages": dict(Counter(str(page.state) for page in document.pages)),
        "lost": audit.describe_losses() if audit else [],
        **_cut("problems", [f"{problem.code}: {problem.message}" for problem in document.problems]),
        **_cut("sections", sections),
    }


def _cut(name: str, values: Sequence[Any], most: int = _MAX_LISTED) -> dict[str, Any]:
    """The first values, and how many are left out."""
    left = len(values) - most
    return {name: list(values[:most]), **({f"more_{name}": left} if left > 0 else {})}


def _add_contents(server: MCPServer[Any], shelf: Library) -> None:
    @server.tool(annotations=_READS)
    def list_pages(
        document: DocumentId,
        start: Annotated[int, Field(description="the first page")] = 1,
    ) -> dict[str, Any]:
        """List the pages that were read, and how each ended: its state, the reason, what of it was lost."""
        with _answer_errors():
            loaded = shelf.load(document)
        pages = [
            {
                "number": page.number,
                "state": page.state,
                "means": page.state.sentence,
                "reason": page.reason,
                "language": page.language,
                "has_loss": page.has_loss,
                "problems": [problem.message for problem in loaded.problems if problem.page == page.number],
            }
            for page in loaded.pages
            if page.number >= start
        ]
        return _cut("pages", pages)

    @server.tool(annotations=_READS, structured_output=False)
    def get_markdown(document: DocumentId, page: PageNumber = None, section: SectionId = None) -> str:
        """The text of a page or section as Markdown, and the ids of its tables and figures; of all without either."""
        with _answer_errors():
            loaded = shelf.load(document)
            chosen = tuple(filter(library.select(loaded, page, section), loaded.elements))
        return _limit(loaded.markdown_of(chosen)) + _list_parts(chosen)

    @server.tool(annotations=_READS, structured_output=False)
    def get_table(document: DocumentId, element: ElementId) -> str:
        """A table as CSV. A cell over several rows or columns is written once, into its first place."""
        with _answer_errors():
            found = library.find_element(shelf.load(document), element)
            table = found.table or (found.figure and found.figure.data)
            if not table:
                message = f"element: a {found.kind}, which has no cells; get_markdown names the tables of a page"
                raise RequestError(Code.NOT_FOUND, message)
        return _limit(library.to_csv(table))

    @server.tool(annotations=_READS, structured_output=False)
    def get_image(document: DocumentId, element: ElementId) -> list[Image | str]:
        """The picture of a table, chart or figure, as it is on the page; a large one is scaled down."""
        with _answer_errors():
            data, size = library.shrink(shelf.crop(document, element), _MAX_SIDE)
        scaled = f"[scaled down from {size[0]:,} × {size[1]:,} pixels to at most {_MAX_SIDE:,}]"
        return [Image(data=data, format="png"), *([scaled] if max(size) > _MAX_SIDE else [])]

    @server.tool(annotations=_READS)
    def search(
        query: Annotated[str, Field(description="words that the text has; parts of words are found, too")],
        document: Annotated[str | None, Field(description="id of a document; by default all that were read")] = None,
        limit: Annotated[int, Field(ge=1, le=50)] = 10,
    ) -> dict[str, Any]:
        """Find the parts of the documents that were read with most of these words, with page, section and boxes."""
        with _answer_errors():
            found = shelf.search(query, document)
        return _cut("found", [_shorten(passage) for passage in found], limit)


def _shorten(passage: Passage) -> dict[str, Any]:
    left = len(passage.text) - _MAX_SNIPPET
    more = {"more_characters": left} if left > 0 else {}
    return {**passage.model_dump(), "text": passage.text[:_MAX_SNIPPET], **more}


def _limit(text: str) -> str:
    if len(text) <= _MAX_TEXT:
        return text
    return f"{text[:_MAX_TEXT]}\n\n[cut after {_MAX_TEXT:,} of {len(text):,} characters; ask for a page or a section]\n"


def _list_parts(elements: Sequence[Any]) -> str:
    """The tables and figures, whose cells and pictures can be asked for."""
    parts = [element for element in elements if element.table or element.is_figure]
    lines = [f"- {part.kind} {part.id}, page {part.page}" for part in parts[:_MAX_LISTED]]
    more = [f"- and {len(parts) - _MAX_LISTED} more"] if len(parts) > _MAX_LISTED else []
    return "\n\n[tables and figures]\n" + "\n".join([*lines, *more]) + "\n" if parts else ""

"""`twopass mcp` in its own process, used with the SDK's own client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pymupdf
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from PIL import Image

from tests import ROOT
from tests.server.conftest import build_pdf

NO_ENGINE = {"ENGINE": "openai", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
PUMPS = (("Pump", "Flow"), ("North", "12.5"), ("South", "8.0"))


def draw_contract(path: Path, tenant: str, terms: str = "may terminate with three months of notice") -> None:
    """Two pages: a heading with a sentence, and a ruled table."""
    with pymupdf.open() as pdf:
        page = pdf.new_page()
        page.insert_text((72, 90), "Tenancy agreement", fontsize=20, fontname="hebo")
        page.insert_text((72, 130), f"The tenant {tenant} {terms}.", fontsize=11)
        page = pdf.new_page()
        page.insert_text((72, 90), "Pumps", fontsize=20, fontname="hebo")
        for row, cells in enumerate(PUMPS):
            for column, text in enumerate(cells):
                box = pymupdf.Rect(72 + 120 * column, 120 + 24 * row, 192 + 120 * column, 144 + 24 * row)
                page.draw_rect(box)
                page.insert_text((box.x0 + 6, box.y1 - 8), text, fontsize=11)
        pdf.save(path)


@pytest.fixture(scope="module")
def contracts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two contracts, a text file, and a link to a file elsewhere."""
    folder = tmp_path_factory.mktemp("contracts")
    draw_contract(folder / "north.pdf", "Ada")
    draw_contract(folder / "south.pdf", "Grace")
    (folder / "notes.txt").write_text("not a document")
    outside = tmp_path_factory.mktemp("outside") / "secret.pdf"
    outside.write_bytes(build_pdf(1))
    (folder / "link.pdf").symlink_to(outside)
    return folder


@asynccontextmanager
async def connect(*arguments: str | Path, **settings: str) -> AsyncIterator[Client]:
    """The SDK's client, connected to a server of its own."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    command = ["-m", "twopass.cli", "mcp", *map(str, arguments)]
    server = StdioServerParameters(
        command=sys.executable, args=command, env={**inherited, "PAGE_WORKERS": "1", **settings}
    )
    async with Client(stdio_client(server)) as client:
        yield client


async def call(client: Client, name: str, **arguments: Any) -> Any:
    """The structured answer of a tool, or the text of one that answers only text."""
    answer = await client.call_tool(name, arguments)
    assert not answer.is_error, answer.content
    return answer.structured_content or answer.content[0].text  # type: ignore[union-attr]


async def refuse(client: Client, name: str, **arguments: Any) -> str:
    """The message with which a tool refuses a call."""
    answer = await client.call_tool(name, arguments)
    assert answer.is_error
    return str(answer.content[0].text)  # type: ignore[union-attr]


async def test_the_walkthrough_of_the_page_finds_the_sentence(tmp_path: Path) -> None:
    """By the configuration and the steps of docs/mcp.md: which contract can be terminated, and a price of it."""
    page = (ROOT / "docs" / "mcp.md").read_text()
    configuration = json.loads(page.partition("```json\n")[2].partition("```")[0])
    steps = page.partition("The model\n")[2].partition("\n\nWith")[0]
    words = steps.partition("words such as `")[2].partition("`")[0]
    folder, home = tmp_path / "contracts", configuration["mcpServers"]["contracts"]
    folder.mkdir()
    draw_contract(folder / "east.pdf", "Ada", "pays until 1999")
    draw_contract(folder / "north.pdf", "Grace")
    draw_contract(folder / "south.pdf", "Mary", "stays for ten years")
    arguments = [argument.replace("/home/me", str(tmp_path)) for argument in home["args"]]
    messages, read = list[str | None](), list[dict[str, Any]]()

    async def note(done: float, total: float | None, message: str | None) -> None:
        messages.append(message)

    async with connect(*arguments[1:]) as client:
        for file in (await call(client, "list_files"))["files"]:
            answer = await client.call_tool("read_document", {"source": file}, progress_callback=note)
            read.append(answer.structured_content or {})
        (hit, *_) = (await call(client, "search", query=words))["found"]
        text = await call(client, "get_markdown", document=hit["document"], page=hit["pages"][0])
        pumps = await call(client, "get_markdown", document=hit["document"], page=2)
        table = pumps.partition("- table ")[2].partition(",")[0]
        csv = await call(client, "get_table", document=hit["document"], element=table)

    assert re.findall(r"`([a-z]+_[a-z]+|search)`", steps) == [
        *("list_files", "read_document", "search", "get_markdown", "get_table", "get_image")
    ]
    assert arguments[0] == "mcp" and Path(home["command"]).name == "twopass"
    assert [one["status"] for one in read] == ["success"] * 3 and (tmp_path / "contracts-read").is_dir()
    assert any(message and message.endswith("of 2 pages") for message in messages)
    assert (Path(hit["source"]).name, hit["pages"][0]) == ("north.pdf", 1)
    assert "Grace may terminate with three months of notice" in text and "North,12.5" in csv


async def test_questions_about_a_folder_of_contracts_can_be_answered(contracts: Path, tmp_path: Path) -> None:
    """A model lists the files, reads them with progress, and finds text, tables and pictures with their places."""
    async with connect(contracts, "--output", tmp_path) as client:
        listed = await call(client, "list_files")
        files, progress = listed["files"], list[tuple[float, str | None]]()

        async def note(done: float, total: float | None, message: str | None) -> None:
            progress.append((done, message))

        answers = {
            Path(file).stem: await client.call_tool("read_document", {"source": file}, progress_callback=note)
            for file in files
        }
        north, south = (answers[name].structured_content or {} for name in ("north", "south"))
        pages = await call(client, "list_pages", document=north["document"])
        text = await call(client, "get_markdown", document=north["document"], page=1)
        section = await call(client, "get_markdown", document=north["document"], section=north["sections"][0]["id"])
        found = (await call(client, "search", query="GRACE notice"))["found"]
        table_id = section.partition("- table ")[2].partition(",")[0]
        csv = await call(client, "get_table", document=north["document"], element=table_id)
        image = await client.call_tool("get_image", {"document": north["document"], "element": table_id})

    assert [Path(file).name for file in files] == ["north.pdf", "south.pdf"]
    assert north["status"] == "success" and north["pages"] == {"read": 2} and north["source"] == files[0]
    assert [one["title"] for one in north["sections"]] == ["Pumps"]
    assert [Path(line.partition(": ")[0]).name for line in listed["not_readable"]] == ["notes.txt", "link.pdf"]
    assert any(message and message.endswith("of 2 pages") for _, message in progress)
    assert [page["state"] for page in pages["pages"]] == ["read", "read"]
    assert "Ada may terminate" in text and "North" not in text
    assert "North" in section and "Ada" not in section
    assert found[0]["document"] == south["document"] and found[0]["pages"][0] == 1 and found[0]["boxes"]
    assert csv == "Pump,Flow\nNorth,12.5\nSouth,8.0\n"
    picture = Image.open(io.BytesIO(base64.b64decode(image.content[0].data)))  # type: ignore[union-attr]
    assert picture.width > picture.height > 40


async def test_large_pictures_are_scaled_down(contracts: Path, tmp_path: Path) -> None:
    """An answer does not fill a model's context, and says what it did."""
    async with connect(contracts, "--output", tmp_path) as client:
        document = (await call(client, "read_document", source="north.pdf"))["document"]
        text = await call(client, "get_markdown", document=document)
        element = text.partition("- table ")[2].partition(",")[0]
        (crop,) = (tmp_path / document).glob(f"**/*{element}*.png")
        Image.new("L", (6000, 3000)).save(crop)
        answer = await client.call_tool("get_image", {"document": document, "element": element})

    picture, scaled = answer.content
    assert Image.open(io.BytesIO(base64.b64decode(picture.data))).size == (2000, 1000)  # type: ignore[union-attr]
    assert scaled.text == "[scaled down from 6,000 × 3,000 pixels to at most 2,000]"  # type: ignore[union-attr]


async def test_what_was_read_is_there_at_the_next_start(contracts: Path, tmp_path: Path) -> None:
    """With --output, a second server answers from what the first one has read, without an engine."""
    async with connect(contracts, "--output", tmp_path) as client:
        first = await call(client, "read_document", source="north.pdf")
    async with connect(
        contracts, "--output", tmp_path, ENGINE="openai", OPENAI_BASE_URL="http://127.0.0.1:9/v1"
    ) as client:
        found = (await call(client, "search", query="terminate"))["found"]
        text = await call(client, "get_markdown", document=first["document"])

    assert [one["document"] for one in found] == [first["document"]]
    assert "Ada may terminate" in text and "North" in text


async def test_answers_say_what_they_leave_out(contracts: Path, tmp_path: Path) -> None:
    """Hits beyond the limit, the rest of a passage; limits, queries and ids that are none are refused."""
    with pymupdf.open() as pdf:
        for number in range(3):
            pdf.new_page().insert_textbox((72, 72, 500, 700), f"Notice {number}. " + "The tenant pays rent. " * 40)
        pdf.save(tmp_path / "long.pdf")
    async with connect(contracts, tmp_path, "--output", tmp_path / "read") as client:
        ids = [(await call(client, "read_document", source=name))["document"] for name in ("north.pdf", "long.pdf")]
        some = await call(client, "search", query="tenant", limit=1)
        long = await call(client, "search", query="rent " * 200_000, document=ids[1], limit=50)
        refused = [await refuse(client, "search", query="tenant", limit=limit) for limit in (0, -1, 51, 10**30)]
        refused += [await refuse(client, "search", query=query) for query in ("", " ", "!?")]
        unknown = await refuse(client, "search", query="tenant", document="long-0123456789ab")

    assert len(some["found"]) == 1 and some["more_found"] >= 1
    assert "more_found" not in long and any(hit.get("more_characters") for hit in long["found"])
    assert all(len(hit["text"]) <= 800 for hit in long["found"])
    assert all("limit" in message for message in refused[:4]) and all("query" in message for message in refused[4:])
    assert "NOT_FOUND: document" in unknown


async def test_what_is_not_allowed_or_wrong_is_refused_with_a_code(contracts: Path, tmp_path: Path) -> None:
    """Nothing outside the allowed folders is read, and nobody learns whether there is a file; the server goes on."""
    other = tmp_path / "other.pdf"
    other.write_bytes(build_pdf(1))
    sources = {
        str(other): "INVALID_JOB",
        str(tmp_path / "missing.pdf"): "INVALID_JOB",
        f"{contracts}/../{tmp_path.name}/other.pdf": "INVALID_JOB",
        str(contracts / "link.pdf"): "INVALID_JOB",
        "/etc/passwd": "INVALID_JOB",
        "nothing\0.pdf": "INVALID_JOB",
        "file:///etc/passwd": "INVALID_JOB",
        "http://example.com/a.pdf": "INVALID_JOB",
        "https://127.0.0.1/a.pdf": "SOURCE_DENIED",
        "missing.pdf": "SOURCE_NOT_FOUND",
        "notes.txt": "SOURCE_UNSUPPORTED",
    }
    async with connect(contracts, MAX_SOURCE_BYTES="1000") as client:
        codes = {source: await refuse(client, "read_document", source=source) for source in sources}
        too_large = await refuse(client, "read_document", source="north.pdf")
        wrong_pages = await refuse(client, "read_document", source="north.pdf", pages="x")
        empty = await refuse(client, "search", query="  ")
        tools = {tool.name for tool in (await client.list_tools()).tools}
        documents = [await refuse(client, "get_markdown", document=name) for name in ("..", "../x", "", "a\0b", "x")]

    assert {source: message.split(": ")[1] for source, message in codes.items()} == sources
    hidden = [codes[str(tmp_path / name)] for name in ("other.pdf", "missing.pdf")]
    assert hidden[0] == hidden[1] and str(contracts) in hidden[0]
    assert all("NOT_FOUND" in message for message in documents)
    assert "SOURCE_TOO_LARGE" in too_large and "INVALID_JOB: pages" in wrong_pages and "query" in empty
    contents = {"get_markdown", "get_table", "get_image", "search"}
    assert tools == {"list_files", "read_document", "list_pages", *contents}


async def test_a_cancelled_reading_stops_and_goes_on_with_the_next_call(tmp_path: Path) -> None:
    """Pages that were read before the cancellation are kept, no more are read after it, and the server answers."""
    (tmp_path / "long.pdf").write_bytes(build_pdf(300))
    (tmp_path / "other.pdf").write_bytes(build_pdf(4, "Other"))
    output = tmp_path / "read"
    async with connect(tmp_path, "--output", output, CONCURRENCY="1") as client:  # the next waits for its end
        reading = asyncio.create_task(client.call_tool("read_document", {"source": "long.pdf"}))
        while len(list(output.glob("*/pages/*.json"))) < 2:
            await asyncio.sleep(0.05)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        few = await call(client, "read_document", source="long.pdf", pages="1")
        stored = [list(output.glob("long-*/pages/*.json"))]
        await call(client, "read_document", source="other.pdf")  # would be read together with the others
        stored.append(list(output.glob("long-*/pages/*.json")))

    assert few["pages"] == {"read": 1}
    assert len(stored[0]) == len(stored[1]) < 300

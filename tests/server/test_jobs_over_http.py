"""Jobs sent to a real server: uploads, sources on S3, several at once, cancelled, refused, and what stays on disk."""

from __future__ import annotations

import http.client
import io
import json
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import lxml.html
import openapi_spec_validator
import pymupdf
import pytest
from PIL import Image

from tests.fakes import damaged_pages, office_files, s3
from tests.fakes.children import find_children
from tests.server.conftest import KEY, Server, build_pdf, iterate_events, read_events, run_server
from twopass.errors import Code


def test_a_file_is_read_and_its_artefacts_can_be_fetched(server: Server) -> None:
    """The answer to the upload has links; the result names artefacts that the server sends, and no path of its disk."""
    sent = server.send(job='{"formats": ["docjson", "markdown", "zip"]}')
    job = server.wait(sent.json()["id"])

    assert sent.status_code == 202 and sent.headers["location"] == sent.json()["links"]["self"]
    assert job["state"] == "done" and job["name"] == "report.pdf"
    document = job["result"]["documents"][0]
    assert document["pages"] == {"read": 2} and document["source"] == "upload:///report.pdf"
    assert document["id"].startswith("report-")
    assert "rebuilt in 1934" in server.client.get(document["artefacts"]["document.md"]["uri"]).text
    archive = server.client.get(f"{job['links']['self']}/document.zip")
    assert {"document.json", "document.md"} <= set(zipfile.ZipFile(io.BytesIO(archive.content)).namelist())
    assert str(server.log.parent) not in json.dumps(job)


def test_what_was_lost_is_said_in_words(server: Server) -> None:
    """The job of a damaged file says what of which page was lost, as `twopass read` does; another job says nothing."""
    sound, damaged = build_pdf(1), damaged_pages.damage(build_pdf(1), 0, "image missing")
    answers = [server.send(data, wait_s=60).json() for data in (sound, damaged)]

    assert [answer["lost"] for answer in answers] == [[], ["1 part of the file not drawn: page 1"]]
    assert answers[1]["result"]["status"] == "partial_success"


def test_a_job_that_is_waited_for_is_answered_with_its_result(server: Server) -> None:
    """With wait_s, one request sends the file and returns the result, inline where that is asked for."""
    answer = server.send(build_pdf(1), job='{"inline": ["markdown"]}', wait_s=60)

    assert answer.status_code == 200
    assert "rebuilt in 1934" in answer.json()["result"]["documents"][0]["inline"]["markdown"]


def test_a_searchable_pdf_is_asked_for_with_the_job(server: Server) -> None:
    """One request asks for it and waits, and a second one downloads it, as the page of the server shows."""
    job = server.send(build_pdf(1), job='{"formats": ["pdf"]}', wait_s=60).json()

    answer = server.client.get(f"/v1/jobs/{job['id']}/document.pdf")

    assert answer.headers["content-type"] == "application/pdf"
    with pymupdf.open("pdf", answer.content) as pdf:
        assert pdf[0].get_text().strip()


def test_an_office_file_is_uploaded_as_a_pdf_is(server: Server) -> None:
    """LibreOffice converts it; the document has the name and type of what was sent."""
    answer = server.send(office_files.make_odf("text"), "report.odt", '{"inline": ["markdown", "docjson"]}', wait_s=90)

    inline = answer.json()["result"]["documents"][0]["inline"]
    assert office_files.SENTENCE in inline["markdown"]
    assert inline["docjson"]["source"]["uri"] == "upload:///report.odt"
    assert inline["docjson"]["source"]["mime"] == "application/vnd.oasis.opendocument.text"


def test_events_tell_every_page_once_and_end_with_the_result(server: Server) -> None:
    """The stream has one event for each page, progress that never falls, and the finished job last."""
    job_id = server.send(build_pdf(4)).json()["id"]

    events = read_events(server, f"/v1/jobs/{job_id}/events")

    assert sorted(data["number"] for name, data in events if name == "page") == [1, 2, 3, 4]
    percents = [data["progress"]["percent"] for name, data in events if name == "progress" and data["progress"]]
    assert percents == sorted(percents)
    assert events[-1][0] == "end" and events[-1][1]["state"] == "done"
    assert [page["number"] for page in server.client.get(f"/v1/jobs/{job_id}/pages").json()] == [1, 2, 3, 4]


def test_one_stream_tells_what_happens_to_all_jobs(server: Server) -> None:
    """It begins with every job, then has pages and states of all jobs without their results, and deletions."""
    old = server.send(build_pdf(1), wait_s=60).json()["id"]
    seen = list[tuple[str, Any]]()
    new = None
    for name, data in iterate_events(server, "/v1/events"):
        seen.append((name, data))
        if name == "listed":
            new = server.send(build_pdf(3)).json()["id"]
        elif name == "job" and data["id"] == new and data["state"] == "done":
            server.client.delete(f"/v1/jobs/{old}")
        elif name == "deleted":
            break

    jobs = [data for name, data in seen if name == "job"]
    assert [data["state"] for data in jobs if data["id"] == old] == ["done"] and seen[-1] == ("deleted", old)
    assert sorted(data["number"] for name, data in seen if name == "page" and data["job"] == new) == [1, 2, 3]
    assert not [data for data in jobs if data["result"]]
    assert len(jobs) > next(data for name, data in seen if name == "listed") > 0


def test_a_stream_of_a_job_that_is_deleted_ends(server: Server) -> None:
    """The stream ends without an error of the server."""
    job_id = server.send(build_pdf(300)).json()["id"]
    logged = server.log.stat().st_size
    for name, _ in iterate_events(server, f"/v1/jobs/{job_id}/events"):
        if name == "page":
            server.client.delete(f"/v1/jobs/{job_id}")
            server.client.delete(f"/v1/jobs/{job_id}")

    assert "Traceback" not in server.log.read_text()[logged:]


def test_a_job_has_small_pictures_of_its_pages(server: Server) -> None:
    """A picture of each page is there when the page is announced; they are small."""
    job_id = server.send(build_pdf(2)).json()["id"]
    pictures = []
    for name, data in iterate_events(server, f"/v1/jobs/{job_id}/events"):
        if name == "page":
            path = f"/v1/jobs/{job_id}/artefacts/{data['document']}/thumbnails/p{data['number']:04d}.webp"
            pictures.append(server.client.get(path))

    assert [answer.headers["content-type"] for answer in pictures] == ["image/webp"] * 2
    assert all(max(Image.open(io.BytesIO(answer.content)).size) == 160 for answer in pictures)
    assert all(len(answer.content) < 5000 for answer in pictures)


def test_two_uploads_at_once_do_not_mix(server: Server) -> None:
    """Files that arrive together are read together, each with its own text."""
    names = ["red", "blue"]
    with ThreadPoolExecutor() as threads:
        sent = list(threads.map(lambda name: server.send(build_pdf(2, name), f"{name}.pdf").json()["id"], names))

    for name, job_id in zip(names, sent, strict=True):
        job = server.wait(job_id)
        text = server.client.get(f"{job['links']['self']}/document.md").text
        assert f"{name} 2" in text and not [other for other in names if other != name and f"{other} 2" in text]


def test_a_page_worker_that_is_killed_costs_no_page(server: Server) -> None:
    """The page is read again in a new page worker, and the job ends with all pages."""
    job_id = server.send(build_pdf(25)).json()["id"]
    server.wait(job_id, ("running",), pages=1)
    page_workers = find_children("page_worker", server.process.pid)
    for page_worker in page_workers:
        page_worker.kill()

    job = server.wait(job_id)

    assert page_workers
    assert job["result"]["documents"][0]["pages"] == {"read": 25}


def test_a_file_that_is_too_large_is_refused_before_it_has_arrived(server: Server) -> None:
    """The server answers 413 with its code while the file is still being sent, also if no length was announced."""
    url = server.client.base_url
    connection = http.client.HTTPConnection(url.host, url.port, timeout=30)
    head = b'--edge\r\nContent-Disposition: form-data; name="file"; filename="a.pdf"\r\n\r\n%PDF-1.7\n'
    connection.putrequest("POST", "/v1/jobs")
    for name, value in (("X-API-Key", KEY), ("Transfer-Encoding", "chunked")):
        connection.putheader(name, value)
    connection.putheader("Content-Type", "multipart/form-data; boundary=edge")
    connection.endheaders()
    for part in (head, *[bytes(1 << 20)] * 4):  # and no end
        connection.send(b"%x\r\n%s\r\n" % (len(part), part))
    with closing(connection):
        answer = connection.getresponse()
        assert answer.status == 413 and json.loads(answer.read())["code"] == "SOURCE_TOO_LARGE"
    announced = server.send(bytes(4_000_000))

    assert announced.status_code == 413 and announced.json()["code"] == "SOURCE_TOO_LARGE"


def test_an_upload_that_is_broken_off_leaves_nothing(server: Server) -> None:
    """A client that goes away while it sends is no error of the server, and nothing is kept of its file."""
    folder = server.log.with_suffix("")
    before, logged = set(folder.iterdir()), server.log.stat().st_size
    with closing(http.client.HTTPConnection(server.client.base_url.host, server.client.base_url.port)) as connection:
        connection.putrequest("POST", "/v1/jobs")
        for name, value in (("X-API-Key", KEY), ("Content-Length", "1000000")):
            connection.putheader(name, value)
        connection.putheader("Content-Type", "multipart/form-data; boundary=edge")
        connection.endheaders(b"--edge\r\n")
    later = server.send(build_pdf(1), wait_s=60).json()

    assert set(folder.iterdir()) - before == {folder / later["id"]}
    assert server.log.stat().st_size == logged


def test_a_file_just_over_the_limit_is_refused(server: Server) -> None:
    """The limit is that of the file, although the form around it may be larger."""
    answer = server.send(b"%PDF-1.7\n" + bytes(2_000_000))

    assert answer.status_code == 413 and "MAX_SOURCE_BYTES" in answer.json()["message"]


def test_a_cancelled_job_stops_and_can_be_deleted(server: Server, tmp_path: Path) -> None:
    """DELETE cancels a running job and returns when nothing of it runs; a second DELETE removes its documents."""
    job_id = server.send(build_pdf(300)).json()["id"]
    server.wait(job_id, ("running",), pages=1)

    cancelled = server.client.delete(f"/v1/jobs/{job_id}").json()
    done = len(server.client.get(f"/v1/jobs/{job_id}/pages").json())
    later = server.send(build_pdf(1), wait_s=60)

    assert cancelled["state"] == "cancelled" and 0 < done < 300
    assert later.json()["state"] == "done"
    assert len(server.client.get(f"/v1/jobs/{job_id}/pages").json()) == done
    assert server.client.delete(f"/v1/jobs/{job_id}").status_code == 200
    assert server.client.get(f"/v1/jobs/{job_id}").json()["code"] == "NOT_FOUND"


WRONG_FILES = [
    "../job.json", "..%2Fjob.json", "%2e%2e/job.json", "..%5Cjob.json", "%2Fetc%2Fpasswd", "/etc/passwd", "a%00b",
    "./document.md", "jobs/../../job.json", "link/job.json", "nothing", "%252e%252e/job.json",
]  # fmt: skip


@pytest.fixture(scope="module")
def finished(server: Server) -> Iterator[dict[str, Any]]:
    """A job that has ended, with a link in its output that leads out of it."""
    job = server.send(build_pdf(1), wait_s=60).json()
    folder = server.log.with_suffix("") / job["id"] / "output"
    (folder / "link").symlink_to(folder.parent)
    yield job


@pytest.mark.parametrize("name", WRONG_FILES)
def test_no_name_leads_out_of_the_jobs_folder(server: Server, finished: dict[str, Any], name: str) -> None:
    """Parent folders, encoded separators, absolute paths, links and NUL are answered like a missing file."""
    for base in (finished["links"]["artefacts"], finished["links"]["files"]):
        url = httpx.URL(server.client.base_url, raw_path=f"{base}{name}".encode())
        answer = server.client.send(httpx.Request("GET", url, headers={"X-API-Key": KEY}))

        assert answer.status_code == 404 and answer.json()["code"] == "NOT_FOUND"
        assert "root:" not in answer.text


def test_a_file_at_a_signed_address_needs_no_key_and_has_no_origin(server: Server, finished: dict[str, Any]) -> None:
    """The address contains its permission, for this job only; the sandbox keeps scripts of the file from the API."""
    name = f"{finished['result']['documents'][0]['id']}/document.json"
    shared = httpx.URL(server.client.base_url).join(finished["links"]["files"])
    forged = str(shared).replace("/shared/", "/shared/0")

    answer = httpx.get(f"{shared}{name}")

    assert answer.json()["pages"]
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert httpx.get(f"{forged}{name}").json()["code"] == "ACCESS_DENIED"
    assert httpx.get(f"{shared}{name}".replace(finished["id"], "0" * 16)).json()["code"] == "ACCESS_DENIED"


@pytest.mark.parametrize(
    "headers", [{}, {"X-API-Key": "wrong"}, {"Authorization": "Bearer wrong"}, {"Authorization": KEY}]
)
@pytest.mark.parametrize(("method", "path"), [("GET", "/v1/jobs"), ("POST", "/v1/jobs"), ("DELETE", "/v1/jobs/0")])
def test_without_the_key_nothing_is_answered(server: Server, headers: dict[str, str], method: str, path: str) -> None:
    """Every route below /v1 but signed addresses needs the key; the answer has a code and the scheme."""
    answer = httpx.request(method, server.client.base_url.join(path), headers=headers)

    assert answer.status_code == 401 and answer.headers["www-authenticate"] == "Bearer"
    assert answer.json()["code"] == "ACCESS_DENIED"


def test_the_key_may_be_a_bearer_token(server: Server) -> None:
    """Authorization: Bearer is accepted as well as X-API-Key."""
    url = server.client.base_url.join("/v1/jobs")

    assert httpx.get(url, headers={"Authorization": f"bearer {KEY}"}).status_code == 200


WRONG_JOBS = {
    '{"colour": 1}': "colour",
    '{"dpi": 1}': "dpi",
    '{"source": "s3://bucket/key"}': "source",
    '{"upload": {"name": "a", "path": "/etc/passwd"}}': "upload",
    '{"entry_point": "local"}': "entry_point",
    '{"output": "/tmp"}': "output",
    "[]": "job",
    "{": "job",
}


@pytest.mark.parametrize("job", WRONG_JOBS)
def test_a_wrong_field_of_a_job_is_named(server: Server, job: str) -> None:
    """The answer is 422 with the field, and nothing is kept of the file."""
    before = len(server.client.get("/v1/jobs").json()["jobs"])

    answer = server.send(job=job)

    assert answer.status_code == 422
    assert answer.json()["code"] == "INVALID_JOB" and answer.json()["field"] == WRONG_JOBS[job]
    assert len(server.client.get("/v1/jobs").json()["jobs"]) == before


@pytest.mark.parametrize("source", ["/etc/passwd", "samples/sample.pdf", "file:///etc/passwd", "upload:///report.pdf"])
def test_a_job_cannot_name_a_file_of_the_server(server: Server, source: str) -> None:
    """Sources are addresses, as on RunPod; paths are refused without a look at the disk."""
    answer = server.client.post("/v1/jobs", json={"source": source})

    assert answer.status_code == 422 and answer.json()["field"] == "sources[0]"


@pytest.mark.parametrize("count", [10_000, 700_000])
def test_a_job_with_too_many_values_is_refused(server: Server, count: int) -> None:
    """It would keep the server from answering others for seconds, so that it is neither validated nor parsed."""
    body = b'{"source": "s3://in/a.pdf"%s}' % b"".join(b',"k%d":1' % number for number in range(count))
    answer = server.client.post("/v1/jobs", content=body, headers={"Content-Type": "application/json"})

    assert answer.status_code == 422 and answer.json()["code"] == "INVALID_JOB"
    assert "values; send several jobs" in answer.json()["message"]


def test_a_private_address_is_refused(server: Server) -> None:
    """A job cannot make the server fetch from its own network."""
    job = server.client.post("/v1/jobs?wait_s=30", json={"source": "https://127.0.0.1/a.pdf"}).json()

    assert job["state"] == "failed" and job["error"]["code"] == "SOURCE_DENIED"


WRONG_BODIES = [
    (b"", "text/plain"),
    (b"--x", "multipart/form-data; boundary=x"),
    (b"x", "multipart/form-data"),
    (b"{", "application/json"),
]


@pytest.mark.parametrize(("content", "media"), WRONG_BODIES)
def test_a_body_that_is_no_job_is_refused(server: Server, content: bytes, media: str) -> None:
    """Other media types, broken forms and forms without a file are INVALID_JOB."""
    answer = server.client.post("/v1/jobs", content=content, headers={"Content-Type": media})

    assert answer.status_code == 422 and answer.json()["code"] == "INVALID_JOB"


def test_unknown_addresses_and_methods_have_a_code_too(server: Server) -> None:
    """Every error of the server is JSON with a code, a message and a field."""
    answers = [server.client.get("/nothing"), server.client.put("/v1/jobs"), server.client.get("/v1/jobs/x/events")]
    answers += [server.client.post("/v1/jobs?wait_s=x")]

    assert [answer.status_code for answer in answers] == [404, 405, 404, 422]
    assert all(set(answer.json()) == {"code", "message", "field"} for answer in answers)
    assert all(answer.json()["code"] in set(Code) for answer in answers)
    assert answers[-1].json()["field"] == "wait_s"


def test_the_api_describes_itself(server: Server) -> None:
    """/openapi.json is valid OpenAPI with every route, and loads nothing from elsewhere."""
    description = httpx.get(server.client.base_url.join("/openapi.json")).json()

    openapi_spec_validator.validate(description)
    assert {"/ping", "/health", "/v1/jobs", "/v1/jobs/{job_id}/events"} <= set(description["paths"])
    assert "multipart/form-data" in description["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]


def test_the_api_has_a_page_without_scripts(server: Server) -> None:
    """/docs names every route of /openapi.json, and loads nothing but a style sheet of the server."""
    page = httpx.get(server.client.base_url.join("/docs"))
    tree = lxml.html.fromstring(page.text)
    paths = httpx.get(server.client.base_url.join("/openapi.json")).json()["paths"]
    shown = {heading.text_content() for heading in tree.iter("h2")}

    assert shown == {f"{method.upper()} {path}" for path, item in paths.items() for method in item}
    assert not list(tree.iter("script")) and "script-src 'self'" in page.headers["content-security-policy"]
    assert [one.get("href") for one in tree.iter("link")] == ["data:,", "/docs.css"]
    assert httpx.get(server.client.base_url.join("/docs.css")).headers["content-type"].startswith("text/css")
    anchors = {one.get("href").removeprefix("#") for one in tree.iter("a") if one.get("href").startswith("#")}
    assert anchors == {one.get("id") for one in tree.iter("section")}


def test_formats_that_were_not_asked_for_can_be_fetched_later(server: Server) -> None:
    """They are written from the stored pages at the first request, and listed with the job then."""
    job = server.send(build_pdf(1), job='{"formats": ["markdown"]}', wait_s=60).json()
    before = set(job["result"]["documents"][0]["artefacts"])
    names = ("document.html", "chunks.jsonl", "docling.json", "document.json")
    answers = {name: server.client.get(f"{job['links']['self']}/{name}") for name in names}
    document = job["result"]["documents"][0]["id"]
    shared = server.client.get(f"{job['links']['files']}{document}/content_list.json")
    after = server.read(job["id"])["result"]["documents"][0]["artefacts"]
    refused = [
        server.client.get(f"{job['links']['self']}/{name}") for name in ("review.html", "document.pdf", "document.zip")
    ]

    assert all("rebuilt in 1934" in answer.text for answer in (*answers.values(), shared))
    assert before == {"document.md"} and set(after) == {*before, *names, "content_list.json"}
    assert after["chunks.jsonl"]["uri"] == f"{job['links']['artefacts']}{document}/chunks.jsonl"
    assert [answer.status_code for answer in refused] == [404, 404, 404]
    assert all("send a new job with its format in formats" in answer.json()["message"] for answer in refused)


def test_a_source_on_s3_is_read_into_the_bucket_that_the_job_names(tmp_path: Path, endpoint: str, bucket: Any) -> None:
    """Sources and outputs by address work as on RunPod, with the server's own access to the bucket."""
    bucket.put_object(Bucket="bucket", Key="in/two.pdf", Body=build_pdf(2))
    with run_server(tmp_path / "jobs", **s3.worker_keys(endpoint), BUCKET_NAME="bucket") as server:
        here = server.client.post("/v1/jobs?wait_s=60", json={"source": "s3://bucket/in/two.pdf"}).json()
        there = {"source": "s3://bucket/in/two.pdf", "output": "s3://bucket/out/"}
        stored = server.client.post("/v1/jobs?wait_s=60", json=there).json()

        assert "rebuilt" in server.client.get(here["result"]["documents"][0]["artefacts"]["document.md"]["uri"]).text
    assert not [key for key in s3.read_objects(bucket) if "thumbnails" in key]
    uri = stored["result"]["documents"][0]["artefacts"]["document.md"]["uri"]
    assert uri.startswith("s3://bucket/out/two-") and uri.removeprefix("s3://bucket/") in s3.read_objects(bucket)

"""The models of jobs, results and progress in, docs/contract.md and docs/openapi.json out.

A test fails when they are stale.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import twopass
from twopass.document import Problem
from twopass.job import INLINE_BYTES, RESULT_BYTES, Artefact, DocumentResult, Job, Result
from twopass.telemetry.progress import Phase, Progress

ROOT = Path(__file__).parents[1]
CONTRACT, OPENAPI = ROOT / "docs" / "contract.md", ROOT / "docs" / "openapi.json"
HIDDEN = ("id", "door", "queued_s")  # of a Job: not the caller's

JOB: Mapping[str, str] = {
    "sources": "`s3://bucket/key`, `https://…` (presigned) or `data:…`; `source` for a single one. "
    "`/runpod-volume/…` with `ALLOW_VOLUME`; other paths on a laptop, and under `--rp_serve_api` below `ALLOWED_DIR`",
    "output": "where artefacts go: `s3://bucket/prefix/`, a folder when local; without it the worker's bucket",
    "inline": "artefacts that the answer itself carries, up to 1 MB; markdown when there is no output",
    "s3": "keys for this job only, never logged and never written; RunPod's `s3Config` beside `input` works too",
    "pages": '`"1-5,8,11-"`; another selection is another document id',
    "slice": "like `pages`, but writes only those checkpoints: same id, no manifest; needs an output",
    "mode": "how large the model sees a page",
    "dpi": "of the rendering",
    "max_crops": "tiles of a page in mode `gundam`",
    "pass2": "what the model reads again from crops: what needs it, everything, nothing",
    "task": "`document`, or one prompt a page",
    "prompt": "what `locate` looks for, or the prompt of `custom` with `<image>` once",
    "formats": "artefacts to write",
    "markdown": "how `document.md` is spelled: `front_matter`, `images` (`folder`, `data`), `maths`, `tables` (`auto`, "
    "`html`, `gfm`), `page_marks`, `furniture`, `merge_tables`; no part of the identity",
    "chunks": "sizes of the pieces in `chunks.jsonl`: `max_tokens`, `min_tokens`; no part of the identity",
    "password": "of an encrypted PDF",
    "language": "a hint for OCR and keywords: `en`, `ko`, `zh` …",
    "sampling": "how tokens are chosen, where the defaults do not serve",
    "deadline_s": "what is not read by then is `unread`; the same job again goes on; 540 on RunPod",
    "failed_pages": "from how many failed pages on, or which share of them, a document is `partial_success` or "
    "`failure`; what was read is kept in any case",
    "resume": "`false` reads everything again into a folder of its own",
}
RESULT: Mapping[str, str] = {
    "status": "`success`: every page read; `failure`: nothing of use; else `partial_success`",
    "documents": "one for each source, in their order; at most 20 here",
    "problems": "what went wrong, page by page; at most 50 here",
    "timings": "`queued_s` where RunPod tells it, `started`, `finished`, `duration_s`, seconds by stage",
    "usage": "`tokens_in`, `tokens_out`, `engine_s`, `pages_read_now`; `cost` and `cost_per_1000_pages` when "
    "`PRICE_PER_SECOND` is set",
    "started": "in a worker's first result: seconds of each stage of its start",
    "result_uri": "the whole result, where an output is set",
    "omitted": "documents and problems that are only in `result.json`",
    "store": "`head_then_put` where the store knows no conditional writes: two workers may then overwrite each other",
}
DOCUMENT: Mapping[str, str] = {
    "id": "`{file stem}-{12 hex}`: of the source's bytes and of what changes the reading; also the folder's name",
    "source": "without query and user info",
    "status": "as above",
    "pages": "counts by state: `read`, `repaired`, `text_layer`, `blank`, `failed`, `unread`",
    "failed": "pages that failed, as ranges: `3,7-9`",
    "left": "pages still to be read: the same job again goes on with them",
    "artefacts": "by name, each with address, bytes, sha256 and content type",
    "inline": "what was asked for inline",
    "canary": "`passed`, `off`, or null where the engine needs none",
    "timings": "as above, of this document",
    "usage": "as above, with `pages_per_s` and `page_p95_s`",
}
PROBLEM: Mapping[str, str] = {
    "code": "one of a closed list: see [codes](CODES.md)",
    "severity": "`warning`: read all the same; `error`: lost",
    "document": "its id",
    "page": "counted from 1, null when it is the document's",
    "message": "what happened and what to do",
}
PROGRESS: Mapping[str, str] = {
    "phase": ", ".join(f"`{phase}`" for phase in Phase),
    "pages_done": "finished in both passes",
    "pages_total": "known so far",
    "elements_done": "analysed",
    "elements_total": "found so far",
    "percent": "`pages_done` of `pages_total`; never falls",
    "pages_per_s": "since the job began",
    "eta_s": "seconds left at this pace, null before there is one",
    "seq": "rises with every report; nothing comes after the result",
}


def main() -> None:
    CONTRACT.write_text(contract())
    OPENAPI.write_text(json.dumps(openapi(), indent=1, ensure_ascii=False) + "\n")


def contract() -> str:
    """The text of docs/contract.md."""
    progress = {field.name: str(field.default) for field in dataclasses.fields(Progress)}
    return f"""# The contract

Every door takes the same job and gives the same result: RunPod's `/run` and `/runsync`, a worker's local API,
`--test_input`. `make docs` writes this page from the models; [openapi.json](openapi.json) says the same to programs.

## A job

The body of a request is `{{"input": {{…}}}}`. Unknown fields are refused; an error names its field.

{_fields(Job, JOB, HIDDEN)}
## A result

At most {RESULT_BYTES // 1000} KB, whatever the job, and up to {INLINE_BYTES // 1_000_000} MB of inline artefacts. A
failed job has `error`, a string that begins with its code, and this result as `detail` beside it.

{_fields(Result, RESULT)}
### A document

{_fields(DocumentResult, DOCUMENT)}
### A problem

{_fields(Problem, PROBLEM)}
## Progress

While a job runs, `GET /status/{{id}}` has this as `output`; so has `progress.json`.

{_rows([(name, default, PROGRESS[name]) for name, default in progress.items()], "at first")}
## What lies in the output

```
{{document id}}/
  document.json    DocJSON: see docs/docjson.schema.json
  document.md      markdown with <!-- page: N --> marks
  images/          crops of figures and tables
  pages/0001.json  a checkpoint for each page; a repeated job reads only what is missing
  manifest.json    written last: its presence means complete
jobs/{{job id}}/
  progress.json, result.json
```

Every artefact but manifest, progress, result and the cost block of a checkpoint is a function of the source's bytes,
the reading options and the checkpoints: the same ones give the same bytes, whoever assembles them.
"""


def _fields(model: type[BaseModel], meanings: Mapping[str, str], hidden: tuple[str, ...] = ()) -> str:
    rows = []
    for name, field in model.model_fields.items():
        if name not in hidden:
            rows.append((name, "required" if field.is_required() else _default(field), meanings[name]))
    return _rows(rows, "default")


def _default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ((), {}, ""):
        return "–"
    if isinstance(value, tuple):
        return ", ".join(f"`{one}`" for one in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _rows(rows: list[tuple[str, str, str]], middle: str) -> str:
    lines = [f"| `{name}` | {default} | {meaning} |" for name, default, meaning in rows]
    return "\n".join([f"| field | {middle} | meaning |", "|---|---|---|", *lines, ""])


def openapi() -> dict[str, Any]:
    """RunPod's endpoint and the local API as a program sees them."""
    schemas: dict[str, Any] = {}
    for model in (Job, Result, Artefact):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    schemas["Job"] = _callers(schemas["Job"])
    schemas.pop("Door", None)
    schemas["Progress"] = {
        "type": "object",
        "properties": {name: {"description": meaning} for name, meaning in PROGRESS.items()},
    }
    schemas["Request"] = {"type": "object", "required": ["input"], "properties": {"input": _ref("Job")}}
    schemas["Answer"] = {
        "type": "object",
        "required": ["id", "status"],
        "properties": {
            "id": {"type": "string"},
            "status": {"enum": ["IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"]},
            "output": {"anyOf": [_ref("Result"), _ref("Progress"), {"type": "object"}]},
            "error": {"type": "string", "description": "begins with a code"},
            "delayTime": {"type": "integer", "description": "milliseconds in the queue"},
            "executionTime": {"type": "integer", "description": "milliseconds on a worker"},
        },
    }
    job_id = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "twopass", "version": twopass.__version__, "license": {"name": "Apache-2.0"}},
        "servers": [
            {
                "url": "https://api.runpod.ai/v2/{endpoint}",
                "description": "RunPod",
                "variables": {"endpoint": {"default": "ENDPOINT_ID"}},
            },
            {"url": "http://localhost:8000", "description": "a worker's local API: /runsync only; needs no key"},
        ],
        "security": [{"key": []}],
        "paths": {
            "/runsync": {"post": _operation("Read and wait for the result", body=True)},
            "/run": {"post": _operation("Queue a job; the answer has its id", body=True)},
            "/status/{id}": {"get": _operation("Progress while it runs, the result at its end"), "parameters": job_id},
            "/cancel/{id}": {"post": _operation("End a job; what it read is kept"), "parameters": job_id},
        },
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _callers(schema: dict[str, Any]) -> dict[str, Any]:
    """A Job as a caller writes it: meanings beside the fields, `source` for a single one."""
    fields = {name: field for name, field in schema["properties"].items() if name not in HIDDEN}
    told = {name: {**field, "description": JOB[name]} for name, field in fields.items()}
    told["source"] = {"type": "string", "description": "in place of `sources`"}
    either = [{"required": ["source"]}, {"required": ["sources"]}]
    rest = {name: value for name, value in schema.items() if name not in ("properties", "required", "description")}
    return {**rest, "properties": told, "oneOf": either}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _operation(summary: str, *, body: bool = False) -> dict[str, Any]:
    def content(name: str) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": _ref(name)}}}

    request = {"requestBody": {"required": True, **content("Request")}} if body else {}
    return {"summary": summary, **request, "responses": {"200": {"description": "the job", **content("Answer")}}}


if __name__ == "__main__":
    main()

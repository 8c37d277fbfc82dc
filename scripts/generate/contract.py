"""Generate docs/contract.md and docs/openapi.json from the models of jobs, results and progress."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from scripts import ROOT
from twopass.document import Problem
from twopass.families.interface import CropRange
from twopass.families.registry import FAMILIES
from twopass.job import Job
from twopass.result import INLINE_BYTES, RESULT_BYTES, Artefact, DocumentResult, Result
from twopass.telemetry.progress import Phase, Progress
from twopass.version import VERSION

CONTRACT, OPENAPI = ROOT / "docs" / "contract.md", ROOT / "docs" / "openapi.json"
HIDDEN = ("id", "entry_point", "queued_s", "upload")  # fields of a Job that the caller does not send


def describe_default_crops() -> str:
    """Name the default of most families, and the families that have another one."""
    usual = CropRange().default
    others = [f"{name} {family.crops.default}" for name, family in FAMILIES.items() if family.crops.default != usual]
    return ", ".join([str(usual), *others])


JOB: Mapping[str, str] = {
    "sources": "`s3://bucket/key`, `https://…` (presigned) or `data:…`; `source` for one; `/runpod-volume/…` with "
    "`ALLOW_VOLUME`; other paths only in local runs, below `ALLOWED_DIR`",
    "output": "`s3://bucket/prefix/`, or a folder in local runs; default: the worker's bucket",
    "inline": "`markdown`, `docjson`: returned in the answer, up to 1 MB; markdown if there is no output",
    "s3": "credentials for this job, never logged or written; or RunPod's `s3Config` next to `input`",
    "pages": '`"1-5,8,11-"`; another selection gives another document id',
    "slice": "pages of which only checkpoints are stored: same id, no manifest; needs an output",
    "mode": "the [resolution](reading.md#modes) at which the model sees a page",
    "dpi": "resolution of the rendered pages",
    "max_crops": f"most tiles in mode `gundam`; null: {describe_default_crops()}",
    "pass2": "elements read again from crops: `auto` (those that need it), `all` or `none`; a layout detector's "
    "regions are always read",
    "figure_descriptions": "figures that [pass 2](reading.md#pass-2) describes in words: `all`, `charts` or `none`",
    "task": "`document`, or [one prompt per page](reading.md#pass-2)",
    "prompt": "what `locate` searches for, or the prompt of `custom`, with `<image>` exactly once",
    "formats": "[artefacts](formats.md) to write",
    "markdown": "[options](formats.md) of `document.md`",
    "chunks": "[sizes](formats.md) of chunks in `chunks.jsonl`",
    "furniture": "headers, footers and page numbers in [text formats](formats.md): `auto`, `keep` or `omit`; default: "
    "as in the existing document, else `auto`",
    "hidden_text": "text that nobody can see, in [formats](formats.md) besides DocJSON: `omit`, `mark` or `keep`; "
    "default: as in the existing document, else `omit`",
    "password": "of an encrypted PDF or office file",
    "language": "a hint for OCR and keywords: `en`, `ko`, `zh` …",
    "sampling": "overrides the engine's sampling parameters",
    "deadline_s": "pages not read by then are `unread`; the same job with an output, sent again, continues; 540 on "
    "RunPod",
    "failed_pages": 'how many failed pages (`3`, or `"5%"`) make which status; default: '
    '`{"partial_success": 1, "failure": null}`, a failure only if no page was read',
    "strict": "a document with a loss or a failed page is a `failure`; what was read is written",
    "resume": "if false, everything is read again, into a separate folder",
    "idempotency_key": "up to 100 letters, digits, `-` and `_`; of several jobs with the same key and output, only the "
    "first reads, and the others end with `DUPLICATE`",
}
RESULT: Mapping[str, str] = {
    "status": "`success`: every page was read, and the audit found no loss; `failure`: no usable page, or with "
    "`strict` a loss; otherwise `partial_success`",
    "documents": "one per source, in their order; at most 20 here",
    "problems": "errors first, at most 50 here; equal ones of several pages are merged, and separate in `result.json`",
    "audit": "sums of the documents' audits",
    "timings": "`queued_s` on RunPod, `started`, `finished`, `duration_s`, seconds per stage",
    "usage": "`tokens_in`, `tokens_out`, `engine_s`, `pages_read_now`; `cost` and `cost_per_1000_pages` if "
    "`PRICE_PER_SECOND` is set",
    "started": "in a worker's first result: seconds per stage of its start, and what was slow",
    "duplicate_of": "after `DUPLICATE`: id of the job that reads",
    "result_uri": "address of the complete result in the output",
    "omitted": "documents and problems that only `result.json` has",
    "store": "`head_then_put`: without conditional writes, two workers may overwrite each other",
}
DOCUMENT: Mapping[str, str] = {
    "id": "`{file stem}-{12 hex digits}`, a hash of the source's bytes and the reading options; also the folder's name",
    "source": "its address, without query and user info",
    "status": "as above",
    "pages": "counts by [state](docjson.md)",
    "failed": "pages that failed, as ranges: `3,7-9`",
    "left": "unread pages",
    "audit": "sums of [the pages' audits](docjson.md#the-audit), and `findings` by kind with their pages",
    "artefacts": "by name, each with address, bytes, sha256 and content type",
    "inline": "the inline artefacts",
    "canary": "[self-test at start](engines.md#the-canary): `passed`, `off`, `misread`, or null",
    "timings": "as above",
    "usage": "as above, with `pages_per_s` and `page_p95_s`",
}
PROBLEM: Mapping[str, str] = {
    "code": "[what happened](CODES.md)",
    "severity": "`error`: not read; `warning`: read, but perhaps not all of it, and only "
    "[a loss](docjson.md#the-audit) changes the status",
    "document": "its id",
    "page": "from 1; null for several pages or the whole document",
    "message": "what happened and what to do",
}
PROGRESS: Mapping[str, str] = {
    "phase": ", ".join(f"`{phase}`" for phase in Phase) + "; `assembling` once all pages are read",
    "pages_done": "finished pages",
    "pages_stored": "of these, pages found in the output",
    "pages_total": "pages known so far",
    "elements_done": "finished elements",
    "elements_total": "elements found so far",
    "parts_done": "in `assembling`: artefacts, and page images of the review page, that are written",
    "parts_total": "of so many",
    "percent": "share of finished pages; never falls, and is 100 only at the end",
    "pages_per_s": "of pages read now",
    "eta_s": "remaining seconds at this pace; null at first",
    "seq": "increases with every report; no report follows the result",
}


def render_files() -> dict[Path, str]:
    openapi = json.dumps(build_openapi(), indent=1, ensure_ascii=False) + "\n"
    return {CONTRACT: render_contract(), OPENAPI: openapi}


def render_contract() -> str:
    """The text of docs/contract.md."""
    return f"""# Jobs and results

RunPod, a worker's local API, `twopass serve` and `--test_input` take the same jobs.
This page is generated: `make docs` writes it from the code. [openapi.json](openapi.json) is for machines.

## A job

Unknown fields are rejected; an error names its field. A job has at most 5,000 values. Defaults are in parentheses.
`markdown`, `chunks`, `furniture`, `hidden_text` and `strict` are no part of the document id.

```json
{{"input": {{"source": "s3://papers/in/report.pdf", "pages": "1-20", "strict": true}}}}
```

{_render_fields(Job, JOB, HIDDEN)}
## A result

```json
{{"status": "success",
 "documents": [{{"id": "report-3f2a9c01b7de", "source": "s3://papers/in/report.pdf", "status": "success",
   "pages": {{"read": 19, "blank": 1}},
   "artefacts": {{"document.json": {{"uri": "s3://papers/out/report-3f2a9c01b7de/document.json", "bytes": 81231}}}},
   "timings": {{"duration_s": 7.1}}, "usage": {{"pages_per_s": 2.8}}}}],
 "problems": []}}
```

At most {RESULT_BYTES // 1000} KB, and up to {INLINE_BYTES // 1_000_000} MB of inline artefacts. A failed job has
`error`, a string that begins with its code, and this result as `detail`.

{_render_meanings(Result, RESULT)}
### A document

{_render_meanings(DocumentResult, DOCUMENT)}
### A problem

{_render_meanings(Problem, PROBLEM)}
## Progress

While a job runs, this is the `output` of `GET /status/{{id}}` and the content of `progress.json`.

{_render_meanings(Progress, PROGRESS)}
## The output

```
{{document id}}/
  document.json    DocJSON
  document.md      markdown with <!-- page: N --> marks; right-to-left text in <div dir="rtl">; other formats beside it
  images/          crops of figures and tables
  pages/0001.json  the checkpoint of a page, which a repeated job does not read again
  manifest.json    written last: if it exists, the document is complete
jobs/{{job id}}/
  progress.json, result.json
jobs/claims/{{idempotency_key}}.json   id of the job that reads under this key
runs/{{time}}-{{6 hex digits}}.json       how each document ended, of `twopass read`, which writes no jobs/
batch_summary.json                     a copy of the last run's, which its field `run` names
```

`batch_summary.json` counts `total_files`, of which `success`, `partial`, `failed` and `unread` (interrupted); what was
`skipped`, by reason; seconds in `total_time`; what was lost in `audit`; a row for each file in `results`.

Equal bytes of a source, reading options and checkpoints give equal artefacts, on any worker.
"""


def _render_fields(model: type[BaseModel], meanings: Mapping[str, str], hidden: tuple[str, ...] = ()) -> str:
    rows = []
    for name, field in model.model_fields.items():
        if name not in hidden:
            default = "required" if field.is_required() else _format_default(field)
            rows.append(f"- `{name}`{f' ({default})' if default else ''}: {meanings[name]}")
    return "\n".join([*rows, ""])


def _render_meanings(kind: type[BaseModel] | type[Progress], meanings: Mapping[str, str]) -> str:
    names = kind.model_fields if issubclass(kind, BaseModel) else [field.name for field in dataclasses.fields(kind)]
    return "\n".join([*(f"- `{name}`: {meanings[name]}" for name in names), ""])


def _format_default(field: Any) -> str:
    value = field.get_default(call_default_factory=True)
    if value is None or isinstance(value, BaseModel) or value in ((), {}, ""):
        return ""
    if isinstance(value, tuple):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def build_openapi() -> dict[str, Any]:
    """Describe RunPod's endpoint and the local API in OpenAPI."""
    schemas: dict[str, Any] = {}
    for model in (Job, Result, Artefact):
        schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas |= schema.pop("$defs", {})
        schemas[model.__name__] = schema
    schemas["Job"] = _describe_job(schemas["Job"])
    for name in ("EntryPoint", "Upload"):
        schemas.pop(name, None)
    schemas["Progress"] = {
        "type": "object",
        "properties": {name: {"description": meaning} for name, meaning in PROGRESS.items()},
    }
    schemas["Request"] = {"type": "object", "required": ["input"], "properties": {"input": _reference("Job")}}
    schemas["Answer"] = {
        "type": "object",
        "required": ["id", "status"],
        "properties": {
            "id": {"type": "string"},
            "status": {"enum": ["IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"]},
            "output": {"anyOf": [_reference("Result"), _reference("Progress"), {"type": "object"}]},
            "error": {"type": "string", "description": "begins with a code"},
            "delayTime": {"type": "integer", "description": "milliseconds in the queue"},
            "executionTime": {"type": "integer", "description": "milliseconds on a worker"},
        },
    }
    job_id = [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}]
    return {
        "openapi": "3.1.0",
        "info": {"title": "twopass", "version": VERSION, "license": {"name": "Apache-2.0"}},
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
            "/runsync": {"post": _describe_operation("Read and wait for the result", body=True)},
            "/run": {"post": _describe_operation("Queue a job; the answer has its id", body=True)},
            "/status/{id}": {
                "get": _describe_operation("Progress while it runs, the result at its end"),
                "parameters": job_id,
            },
            "/cancel/{id}": {
                "post": _describe_operation("Cancel a job; pages that were read are kept"),
                "parameters": job_id,
            },
        },
        "components": {"schemas": schemas, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
    }


def _describe_job(schema: dict[str, Any]) -> dict[str, Any]:
    """Turn a Job's schema into what a caller may send: fields with their meanings, and `source` for a single one."""
    fields = {name: field for name, field in schema["properties"].items() if name not in HIDDEN}
    properties = {name: {**field, "description": JOB[name]} for name, field in fields.items()}
    properties["source"] = {"type": "string", "description": "instead of `sources`"}
    alternatives = [{"required": ["source"]}, {"required": ["sources"]}]
    rest = {name: value for name, value in schema.items() if name not in ("properties", "required", "description")}
    return {**rest, "properties": properties, "oneOf": alternatives}


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _describe_operation(summary: str, *, body: bool = False) -> dict[str, Any]:
    def content(name: str) -> dict[str, Any]:
        return {"content": {"application/json": {"schema": _reference(name)}}}

    request = {"requestBody": {"required": True, **content("Request")}} if body else {}
    return {"summary": summary, **request, "responses": {"200": {"description": "the job", **content("Answer")}}}

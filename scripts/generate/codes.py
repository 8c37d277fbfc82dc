"""Generate docs/CODES.md: every problem code, what happened and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scripts import ROOT
from twopass.cli import exit_codes
from twopass.errors import Code

CODES_PAGE = ROOT / "docs" / "CODES.md"

# code: what happened, what to do
JOB_CODES: Mapping[Code, tuple[str, str]] = {
    Code.INVALID_JOB: (
        "A field of the input is missing, unknown or out of range.",
        "Correct the named field.",
    ),
    Code.INVALID_SETTING: (
        "A setting is wrong, missing or unknown, or a port is in use.",
        "Correct or unset the named variable.",
    ),
    Code.SOURCE_NOT_FOUND: (
        "Nothing is at the source's address.",
        "Check bucket, key and spelling.",
    ),
    Code.SOURCE_DENIED: (
        "Access is denied, or the address is not allowed.",
        "Check keys (s3:GetObject), sign a new URL, or set `ALLOW_PRIVATE_SOURCES`.",
    ),
    Code.SOURCE_TOO_LARGE: (
        "The source has too many bytes, pages or pixels.",
        "Raise `MAX_SOURCE_BYTES`, `MAX_PAGES` or `MAX_IMAGE_PIXELS`, or split the file.",
    ),
    Code.SOURCE_UNSUPPORTED: (
        "The file's type or the address's scheme is not read, or LibreOffice is missing.",
        "Convert the file, install what is named, or use s3://, https:// or data:.",
    ),
    Code.DAMAGED: (
        "The file or the named page is damaged beyond repair.",
        "Save it with another program. Other pages are read.",
    ),
    Code.ENCRYPTED: (
        "The file needs a password, or the given one is wrong.",
        "Set the field `password`, or `--password`.",
    ),
    Code.PAGE_RANGE: (
        "The document lacks pages that `pages` or `slice` names.",
        "Correct the range. As a warning: existing pages were read.",
    ),
    Code.OUTPUT_MISSING: (
        "There is no output, or too much was requested inline.",
        "Set `output`, or `BUCKET_NAME` on the endpoint.",
    ),
    Code.OUTPUT_DENIED: (
        "The output cannot be found, written or listed.",
        "Check its name and the keys (s3:PutObject, s3:GetObject, s3:ListBucket).",
    ),
    Code.STORE_UNAVAILABLE: (
        "A store or host did not answer in time, or a disk is full.",
        "Free space if the message says so, and send the same job again.",
    ),
    Code.PLATFORM: (
        "The machine lacks Linux, a GPU, or a package of the engine.",
        "Use another machine, a container, or another engine.",
    ),
    Code.ENGINE_DEAD: (
        "The engine died or did not start; unfinished pages are `unread`.",
        "Send the same job again; then see the worker's log.",
    ),
    Code.ENGINE_MEMORY: (
        "The engine is out of memory; unfinished pages are `unread`.",
        "Use a larger GPU, or lower `ENGINE_SEQUENCES` or `dpi`.",
    ),
    Code.WEIGHTS_MISSING: (
        "Weights of the model or layout detector are missing or incomplete.",
        "Set `MODEL_DIR`, `DETECTOR_DIR` or `ALLOW_DOWNLOAD`.",
    ),
    Code.CANARY: (
        "At its start, the engine misread a known image, or repeated a line.",
        "Run [`twopass accept`](acceptance.md), then read again with `resume: false`.",
    ),
    Code.DEADLINE: (
        "The deadline passed before all pages were read.",
        "With an output, send the same job again. Or raise `deadline_s`.",
    ),
    Code.SHUTDOWN: (
        "The worker was shut down before all pages were read.",
        "With an output, send the same job again.",
    ),
    Code.ENDPOINT_DENIED: (
        "The endpoint rejects the jobs.",
        "Check its id and `RUNPOD_API_KEY`.",
    ),
    Code.ENDPOINT_UNAVAILABLE: (
        "The endpoint is not reached, too busy, or has no worker to start.",
        "Repeat the command. If busy, lower `--in-flight`.",
    ),
    Code.ENDPOINT_ANSWER: (
        "The endpoint's answer about a job cannot be parsed.",
        "Check that its workers run twopass, then repeat the command.",
    ),
    Code.DUPLICATE: (
        "Another job with the same `idempotency_key` reads instead.",
        "Wait for the job that `duplicate_of` names, or use another key.",
    ),
    Code.JOB_LOST: (
        "The endpoint lost a job, or left pages unread, `--tries` times.",
        "See the endpoint's log, then repeat the command.",
    ),
    Code.COST_LIMIT: (
        "`--max-cost` is reached.",
        "Raise it and repeat the command.",
    ),
    Code.RUN_LIMIT: (
        "A job ran `--max-runs` times and is incomplete.",
        "See why the runs ended, then repeat the command.",
    ),
    Code.IN_USE: (
        "Another `twopass submit` uses the folder.",
        "Wait, or name another `--folder`.",
    ),
    Code.ACCESS_DENIED: (
        "The API key is missing or wrong, or another website sent the request.",
        "Send `SERVE_API_KEY` as [`X-API-Key`](serve.md#the-key).",
    ),
    Code.NOT_FOUND: (
        "There is no such job, artefact or address, or not yet.",
        "Check the id and `formats`; old jobs are deleted.",
    ),
    Code.REQUEST_TIMEOUT: (
        "A request comes too slowly ([limits](serve.md#what-one-client-may-take)).",
        "Use a better connection, or send the address of a file on S3.",
    ),
    Code.TOO_MANY_CONNECTIONS: (
        "One address has more connections than `SERVE_CONNECTIONS`.",
        "Close some. Behind a proxy, raise the limit.",
    ),
    Code.QUEUE_FULL: (
        "As many jobs wait as `SERVE_QUEUE` allows.",
        "Send it again after `Retry-After` seconds.",
    ),
    Code.STARTING: (
        "The engine of `twopass serve` is not ready.",
        "Send it again after `Retry-After` seconds.",
    ),
    Code.INTERNAL: (
        "An unexpected error: a bug.",
        "Report it with the traceback of the worker's log.",
    ),
}
PAGE_CODES: Mapping[Code, tuple[str, str]] = {
    Code.LOOP: (
        "The answer repeats itself.",
        "Check the page. Another `mode` or `dpi` often helps.",
    ),
    Code.TRUNCATED: (
        "The answer was cut at the token limit.",
        "Raise `sampling.max_tokens` or lower `dpi`.",
    ),
    Code.EMPTY: (
        "The answer is empty, but the page is not blank.",
        "Raise `dpi`, or try another `mode`.",
    ),
    Code.UNGROUNDED: (
        "The answer has no positions; its text has no boxes.",
        "Read the page again in another `mode`.",
    ),
    Code.RENDER_CRASH: (
        "The page crashed its page worker twice.",
        "Send the job again; then save the file with another program.",
    ),
    Code.RENDER_TIMEOUT: (
        "The page, or opening the file, takes too long.",
        "Send the job again; then raise `WORKER_TIMEOUT_S` or lower `dpi`.",
    ),
    Code.ENGINE_CRASH: (
        "The page crashed the engine more than once, at last alone.",
        "Send the job again; then try another `mode` or `dpi`. Report the page.",
    ),
    Code.RENDER_MEMORY: (
        "The page takes too much memory.",
        "Raise `WORKER_MEMORY_BYTES` or lower `dpi`.",
    ),
    Code.PIXEL_LIMIT: (
        "The page was read at a lower resolution than requested.",
        "Raise `MAX_PAGE_PIXELS` if small print is missing.",
    ),
    Code.ENGINE_REFUSED: (
        "The engine rejected a prompt.",
        "See the worker's log. Check the prompt of `task: custom`; report others.",
    ),
    Code.UNREADABLE_SCRIPT: (
        "The engine cannot read the scan's script, or some of its lines.",
        "Install its [language file](reading.md#limits-of-the-cpu-engine), or use a model.",
    ),
    Code.DENSE_PAGE: (
        "The page is too dense for the layout model.",
        "All words are there; check the order of columns.",
    ),
    Code.PARTS_OMITTED: (
        "Damaged or slow links, annotations or form fields were left out.",
        "For these, save the file with another program.",
    ),
    Code.NO_TEXT: (
        "No text was found; the page is kept as one picture.",
        "If it shows text, raise `dpi`.",
    ),
    Code.UNREADABLE_TEXT: (
        "The text layer makes no sense or does not match the picture.",
        "Read the page with an engine that reads pictures.",
    ),
    Code.REGIONS_UNREAD: (
        "The model gave no text for detected regions.",
        "Check them. If they show text, raise `dpi`.",
    ),
    Code.REGIONS_DROPPED: (
        "Detected regions without an area were dropped.",
        "Nothing: other text is looked for.",
    ),
    Code.ORDER_CORRECTED: (
        "The detector's order contradicted the columns.",
        "It was corrected: check the order of elements.",
    ),
    Code.MIXED_COLUMNS: (
        "Lines probably run across columns (flag `mixed_columns`).",
        "Check the order of their words.",
    ),
    Code.ANSWER_TOO_LONG: (
        "An answer is longer than a page can be; the rest was cut.",
        "Check the page, and the model or server.",
    ),
    Code.CONTENT_LOST: (
        "A part of the page is damaged and cannot be drawn.",
        "If another program shows more, save the file with that.",
    ),
    Code.IMAGE_LOST: (
        "An image is damaged; what can be drawn was read.",
        "If another program shows more, save the file with it.",
    ),
    Code.MISSED_TEXT: (
        "The first reading missed text, which was read later (flag `missed`).",
        "Check its place, which is a guess.",
    ),
    Code.UNREAD_INK: (
        "Lines that look like text were not read; their elements have only an image.",
        "Look at it. Use another engine, or raise `dpi`.",
    ),
    Code.CONTENT_ALTERED: (
        "A damaged part of the page was repaired.",
        "Compare the page with the file.",
    ),
    Code.HIDDEN_TEXT: (
        "The PDF has text that [nobody can see](docjson.md).",
        "Read it in DocJSON or the review page, or set `hidden_text`.",
    ),
    Code.HIDDEN_PARTS: (
        "Hidden parts, comments, notes or words of an office file were not read; if encrypted, unknown.",
        "Show them in the file, or print them to a PDF.",
    ),
    Code.TEXT_NOT_DRAWN: (
        "A damaged font draws nothing; its text is kept.",
        "Open the file in another program, and compare.",
    ),
    Code.FONT_WRONG: (
        "A font names other characters than it draws; its pixels were read.",
        "Compare numbers and names with the page.",
    ),
    Code.REDACTION_PENDING: (
        "A part is marked to be blacked out, but was read.",
        "Apply the redactions in the file.",
    ),
    Code.UNKNOWN_CHARACTERS: (
        "A font does not name some characters. Single signs were left out.",
        "Compare the page, or use an engine that reads pictures.",
    ),
    Code.WORDS_LOST: (
        "Words of the model's answer are in no element.",
        "The checkpoint has the answer. Report the page.",
    ),
    Code.FORMAT_LOST: (
        "Words are missing or repeated in a format; the message names them.",
        "DocJSON has all words. Report the document.",
    ),
}
MEANINGS = {**JOB_CODES, **PAGE_CODES}


def render_files() -> dict[Path, str]:
    return {CODES_PAGE: render_codes()}


def render_codes() -> str:
    """The text of docs/CODES.md."""
    return f"""# Codes

Every problem in a result has one of these codes, and every error message begins with one and names the field, file or
page. Each line says what happened, *and what to do*. A job that is sent again reads only what is missing. This page is
generated: `make docs` writes it from `scripts/generate/codes.py`.

## Jobs and documents

{_render_list(JOB_CODES)}
## Pages

As an error, the page or document was not read; as a warning it was, perhaps in part.

{_render_list(PAGE_CODES)}
## Exit codes

A command's `--help` says what they mean for it. For `handler.py`: {_describe_handler()}.

{_render_exit_codes()}"""


def _describe_handler() -> str:
    return "; ".join(f"{code} {meaning}" for code, meaning in exit_codes.OUTCOMES["handler.py"].items())


def _render_exit_codes() -> str:
    return "".join(f"- `{code}`: {meaning}\n" for code, meaning in exit_codes.MEANINGS.items())


def _render_list(meanings: Mapping[Code, tuple[str, str]]) -> str:
    return "".join(f"- `{code}`: {meaning} *{advice}*\n" for code, (meaning, advice) in meanings.items())

"""Generate docs/CODES.md: every problem code, what happened and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from scripts import ROOT
from twopass.cli import exit_codes
from twopass.cli.app import COMMANDS
from twopass.errors import Code

CODES_PAGE = ROOT / "docs" / "CODES.md"

# code: what happened, what to do
JOB_CODES: Mapping[Code, tuple[str, str]] = {
    Code.INVALID_JOB: (
        "A field of the input is missing, unknown or out of range.",
        "Correct the field that the message names. Nothing was read.",
    ),
    Code.INVALID_SETTING: (
        "An environment variable is wrong or missing, settings do not fit together, or a port is in use. As a warning, "
        "in a worker's first result: an unknown variable is probably a misspelt setting, which has no effect.",
        "Correct or unset the variable that the message names. `twopass doctor` checks all of them.",
    ),
    Code.SOURCE_NOT_FOUND: (
        "There is no object or file at the source's address.",
        "Check bucket, key and spelling; a presigned URL may point to an object that has been deleted.",
    ),
    Code.SOURCE_DENIED: (
        "Access is denied: wrong or expired credentials, or an address that the worker does not connect to.",
        "Check the keys and their s3:GetObject permission, or sign a new URL. Private addresses need "
        "`ALLOW_PRIVATE_SOURCES`.",
    ),
    Code.SOURCE_TOO_LARGE: (
        "The source has more bytes, pages or pixels than the worker accepts.",
        "Raise `MAX_SOURCE_BYTES`, `MAX_PAGES` or `MAX_IMAGE_PIXELS`, or split or scale the file.",
    ),
    Code.SOURCE_UNSUPPORTED: (
        "The content is of no type that is read, LibreOffice is not installed, or the address has an unknown scheme.",
        "Convert the file, or install what the message names. For an address, use s3://, https:// or data:.",
    ),
    Code.DAMAGED: (
        "The file or the named page is damaged and cannot be repaired.",
        "Upload it again, or save it with another program. The other pages of the document are read.",
    ),
    Code.ENCRYPTED: (
        "The file needs a password, or the given one is wrong.",
        "Set the field `password`.",
    ),
    Code.PAGE_RANGE: (
        "`pages` or `slice` names pages that the document does not have.",
        "Correct the range. As a warning: the pages that exist were read.",
    ),
    Code.OUTPUT_MISSING: (
        "There is no output for the result, or too much of it was requested inline.",
        "Set `output`, or `BUCKET_NAME` on the endpoint.",
    ),
    Code.OUTPUT_DENIED: (
        "The output cannot be written or listed, or does not exist.",
        "Check the bucket's name and the keys' permissions s3:PutObject, s3:GetObject and s3:ListBucket.",
    ),
    Code.STORE_UNAVAILABLE: (
        "A store or host did not answer, or not in time.",
        "Send the same job again. Pages that were stored are kept.",
    ),
    Code.PLATFORM: (
        "This machine cannot read: another system than Linux, or no GPU and no package for the engine.",
        "Use another machine or a container, or another engine. Sending the job again does not help.",
    ),
    Code.ENGINE_DEAD: (
        "The engine died or could not be started. Pages that it did not finish are `unread`.",
        "Send the same job again; with an output, it continues where it stopped. If it happens again, see the worker's "
        "log.",
    ),
    Code.ENGINE_MEMORY: (
        "The engine is out of memory. Pages that it did not finish are `unread`.",
        "Use a larger GPU, or lower `ENGINE_SEQUENCES` or `dpi`.",
    ),
    Code.WEIGHTS_MISSING: (
        "The weights of the model or of the layout detector are missing or incomplete.",
        "The message lists the folders that were searched. Build them into the image, set `MODEL_DIR` or "
        "`DETECTOR_DIR`, or set `ALLOW_DOWNLOAD`.",
    ),
    Code.CANARY: (
        "The engine misread a known image at start, or repeated a line in spite of the n-gram ban: driver, versions, "
        "model and settings do not fit together.",
        "The worker's log says what was wrong. Once `twopass accept` has passed, or with `CANARY=enforce`, such a "
        "worker does not serve: compare its versions with those of the image. Before, every document has this problem "
        "and none is `success`: run [`twopass accept`](acceptance.md), and read them again with `resume: false`.",
    ),
    Code.DEADLINE: (
        "The job's deadline passed before all pages were read. The others are `unread`.",
        "With an output, send the same job again; it continues where it stopped. Or raise `deadline_s`.",
    ),
    Code.SHUTDOWN: (
        "The worker was shut down before all pages were read.",
        "Send the same job again; with an output, it continues where it stopped.",
    ),
    Code.ENDPOINT_DENIED: (
        "The endpoint that jobs are sent to rejects them.",
        "Check its id and `RUNPOD_API_KEY`. The message has the endpoint's answer.",
    ),
    Code.ENDPOINT_UNAVAILABLE: (
        "The endpoint that jobs are sent to cannot be reached, was busy for too long, or has no worker that can start.",
        "Run the same command again; it continues where it stopped. If the endpoint is busy, lower `--in-flight`.",
    ),
    Code.ENDPOINT_ANSWER: (
        "The endpoint's answer about a job cannot be parsed; the message names the field. The other jobs go on.",
        "Check that the address is that of an endpoint whose workers run twopass. The job may have run, so it is not "
        "sent again: the same command asks for it.",
    ),
    Code.DUPLICATE: (
        "Another job has the same `idempotency_key` and reads in place of this one.",
        "Wait for the result of the job that `duplicate_of` names. To read again, use another key. `twopass submit` "
        "does this itself.",
    ),
    Code.JOB_LOST: (
        "The endpoint lost a job, or ended it without a result or with unread pages, as often as `--tries` allows.",
        "See the endpoint's log. Run the same command again to read the missing pages.",
    ),
    Code.COST_LIMIT: (
        "`--max-cost` of `twopass submit` is reached. The message says what was spent and what was in flight.",
        "Raise `--max-cost` and repeat the command: documents that were not sent are read then.",
    ),
    Code.RUN_LIMIT: (
        "A job ran `--max-runs` times and is still not complete, although each run stored new pages.",
        "See why the runs ended. Raise `--max-runs`, or repeat the command to continue.",
    ),
    Code.IN_USE: (
        "Another `twopass submit` uses the folder; the message names its host and process.",
        "Wait for its end, or name another `--folder`.",
    ),
    Code.ACCESS_DENIED: (
        "`twopass serve` refuses the request: the API key is missing or wrong, or another website sent it.",
        "Send `SERVE_API_KEY` as `Authorization: Bearer` or `X-API-Key`. Without a key, the server answers "
        "only requests to localhost.",
    ),
    Code.NOT_FOUND: (
        "`twopass serve` has no such job, artefact or address, or the job is not finished.",
        "Check the id; old jobs are deleted after `SERVE_RETENTION_S`. For an artefact, name its format in `formats`.",
    ),
    Code.REQUEST_TIMEOUT: (
        "A request to `twopass serve` arrives too slowly: its headers took longer than 10 seconds, nothing of its body "
        "came for 60 seconds, or after 10 seconds the body was slower than 8 KiB a second on average.",
        "Send it again over a better connection, or put the file on S3 and send its address.",
    ),
    Code.TOO_MANY_CONNECTIONS: (
        "One address has more connections to `twopass serve` than `SERVE_CONNECTIONS`.",
        "Close some, or wait. Behind a proxy, all clients have its address: raise `SERVE_CONNECTIONS` there.",
    ),
    Code.QUEUE_FULL: (
        "As many jobs wait for `twopass serve` as `SERVE_QUEUE` allows.",
        "Send the job again after the seconds of the `Retry-After` header.",
    ),
    Code.STARTING: (
        "`twopass serve` is starting and its engine is not ready.",
        "Send the request again after the seconds of the `Retry-After` header.",
    ),
    Code.INTERNAL: (
        "An unexpected error: a bug.",
        "Report it with the traceback from the worker's log, which is marked with the job's id.",
    ),
}
PAGE_CODES: Mapping[Code, tuple[str, str]] = {
    Code.LOOP: (
        "The answer repeats itself.",
        "Check the page. Another `mode` or `dpi` often helps.",
    ),
    Code.TRUNCATED: (
        "The answer was truncated at the token limit.",
        "Raise `sampling.max_tokens` or lower `dpi`.",
    ),
    Code.EMPTY: (
        "The answer is empty, but the page is not blank.",
        "Check the page: its text may be too faint. Raise `dpi`, or try another `mode`.",
    ),
    Code.UNGROUNDED: (
        "The answer has no positions for its text.",
        "The text is kept without boxes. Read the page again in another `mode`.",
    ),
    Code.RENDER_CRASH: (
        "The page crashed its page worker twice.",
        "Send the same job again; it reads only this page. If it fails again, save the file with another program.",
    ),
    Code.RENDER_TIMEOUT: (
        "The page, or opening the document, needs more processor time than the limit.",
        "Send the same job again; it reads only this page. If it fails again, raise `WORKER_TIMEOUT_S` or lower `dpi`.",
    ),
    Code.ENGINE_CRASH: (
        "The engine crashed on the page more than once, the last time while it read nothing else.",
        "Send the same job again; it reads only this page. If it fails again, try another `mode` or `dpi`, and report "
        "the page.",
    ),
    Code.RENDER_MEMORY: (
        "The page used more memory than the limit, and its page worker was killed.",
        "Raise `WORKER_MEMORY_BYTES` if the machine has more, or lower `dpi`. A small file that needs so much may be "
        "malicious.",
    ),
    Code.PIXEL_LIMIT: (
        "The page was rendered at a lower resolution than requested, to stay within the limit.",
        "It was read. Raise `MAX_PAGE_PIXELS` if small print is missing.",
    ),
    Code.ENGINE_REFUSED: (
        "The engine rejected a prompt.",
        "The worker's log has the engine's message. With `task: custom`, check the prompt; otherwise report it.",
    ),
    Code.UNREADABLE_SCRIPT: (
        "The scan is in a script that the engine cannot read, or, if it is a warning, some of its lines are unreadable "
        "and were left out. No text is guessed.",
        "Install a language file of Tesseract (on Debian for example `tesseract-ocr-kor`), or set `TESSDATA_DIR`; or "
        "use an engine that runs a model.",
    ),
    Code.DENSE_PAGE: (
        "The page has too many lines or drawings for the layout model and was split into blocks along white space.",
        "All words are there; check the order of columns.",
    ),
    Code.PARTS_OMITTED: (
        "Links, annotations or form fields of the page were left out, because they are damaged or take too long.",
        "Text and pixels of the page are there. Save the file with another program if you need the rest.",
    ),
    Code.NO_TEXT: (
        "No text was found on the page, and it is not blank: a photograph or a drawing. It is kept as one picture.",
        "Nothing, if the page is a picture. If it shows text, raise `dpi`.",
    ),
    Code.UNREADABLE_TEXT: (
        "The page was read from a text layer that makes no sense or does not match the page's picture. Its elements "
        "have the flag `unreadable`, and the markdown marks them.",
        "Do not use this text. Read the page with an engine that reads pictures.",
    ),
    Code.REGIONS_UNREAD: (
        "The page was divided into regions by a layout detector, and the model gave no text for some of them, or for "
        "none of them if it is an error. Those regions have the flag `unread_region`, or show the PDF's own text.",
        "Check these regions. If they show text, raise `dpi`; if there are many, see the worker's log.",
    ),
    Code.REGIONS_DROPPED: (
        "The layout detector gave regions without an area. They were dropped.",
        "Nothing, if no text is missing: what lies outside all regions is looked for.",
    ),
    Code.ORDER_CORRECTED: (
        "The layout detector's order contradicted the columns of the page and was corrected.",
        "Check the order of the page's elements.",
    ),
    Code.ANSWER_TOO_LONG: (
        "An answer has more characters than one about a page can have. The rest of it was cut before it was parsed.",
        "Check the page, and the model or server behind the engine.",
    ),
    Code.CONTENT_LOST: (
        "A part of the page is damaged in the file and cannot be drawn: a content stream, a form or a font.",
        "Open the file in another program. If it shows more, save the file with it and read that.",
    ),
    Code.IMAGE_LOST: (
        "An image on the page is damaged in the file. What of it can be drawn was read.",
        "Open the file in another program. If it shows more, save the file with it and read that.",
    ),
    Code.MISSED_TEXT: (
        "The first reading missed text that the page shows. It was found as ink or in the PDF's own text, and read. "
        "Those elements have the flag `missed`.",
        "Check where they stand: their place in the reading order is a guess.",
    ),
    Code.UNREAD_INK: (
        "The page shows lines that look like text, and nothing was read there. Those elements have the flag `missed`, "
        "no text, and an image.",
        "Look at the images. Read the page with an engine that knows the script, or raise `dpi`.",
    ),
    Code.CONTENT_ALTERED: (
        "A part of the page is damaged in the file and was repaired while it was drawn.",
        "Compare the page with the file.",
    ),
    Code.HIDDEN_TEXT: (
        "The PDF has text that nobody can see on the page: in an invisible mode, transparent, tiny, in the colour of "
        "its background, covered, clipped away or in a layer that is switched off. It is in `document.json` and on "
        "the review page, and in no other format.",
        "Read it there. To have it in other formats, set `hidden_text` to `mark` or `keep`.",
    ),
    Code.HIDDEN_PARTS: (
        "The office file has hidden sheets, rows, slides or text, comments, speakers' notes or deleted text, which are "
        "on no page and were not read. Of an encrypted file this is not known.",
        "Show them in the file, or print comments and notes to a PDF, if you need them.",
    ),
    Code.TEXT_NOT_DRAWN: (
        "A font of the PDF is damaged and draws nothing. Its text is kept.",
        "Open the file in another program, and compare.",
    ),
    Code.FONT_WRONG: (
        "A font of the PDF names other characters than it draws, so that the file's own text is wrong. The page was "
        "read from its pixels.",
        "Compare numbers and names with the page.",
    ),
    Code.REDACTION_PENDING: (
        "A part of the page is marked to be blacked out, and is not. What lies below is in the file and was read.",
        "Apply the redactions before the document is passed on.",
    ),
    Code.UNKNOWN_CHARACTERS: (
        "The text has characters that their font does not name. Signs that stand alone, such as bullets and arrows, "
        "were left out, which is no loss; words keep them.",
        "Compare the page with the file, or read it with an engine that reads pictures.",
    ),
    Code.WORDS_LOST: (
        "The model's answer has words that are in no element of the page.",
        "The page's checkpoint has the whole answer. Report the page if you may share it.",
    ),
    Code.FORMAT_LOST: (
        "Words of the document are missing or repeated in one of its formats; the message names them.",
        "DocJSON has all words. Report the document if you may share it.",
    ),
}
MEANINGS = {**JOB_CODES, **PAGE_CODES}


def render_files() -> dict[Path, str]:
    return {CODES_PAGE: render_codes()}


def render_codes() -> str:
    """The text of docs/CODES.md."""
    return f"""# Codes

Every problem in a result has one of these codes, and every error message begins with one. The list is complete.
The message names the field, file or page. `make docs` writes this page from `scripts/generate/codes.py`.

## Jobs and documents

{_render_table(JOB_CODES)}
## Pages

As a warning, the page was still read; as an error, it was lost.

{_render_table(PAGE_CODES)}
## Exit codes

Commands end with these codes, and `--help` has those of a command.

{_render_exit_codes()}"""


def _render_exit_codes() -> str:
    rows = [
        *("| exit code | meaning |", "|---|---|"),
        *(f"| {code} | {meaning} |" for code, meaning in exit_codes.MEANINGS.items()),
        *("", "| command | its exit codes |", "|---|---|"),
    ]
    for name, outcomes in exit_codes.OUTCOMES.items():
        shown = "; ".join(f"{code} {meaning}" for code, meaning in outcomes.items())
        rows.append(f"| `{f'twopass {name}' if name in COMMANDS else name}` | {shown} |")
    return "\n".join(rows) + "\n"


def _render_table(meanings: Mapping[Code, tuple[str, str]]) -> str:
    rows = [f"| `{code}` | {meaning} | {advice} |" for code, (meaning, advice) in meanings.items()]
    return "\n".join(["| code | what happened | what to do |", "|---|---|---|", *rows, ""])

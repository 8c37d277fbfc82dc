"""The program's models in, README.md's tables of settings and presets, docs/configuration.md and docs/CODES.md out.

A test fails when they are stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import SecretStr

from twopass.engine_settings import PRESETS
from twopass.errors import Code
from twopass.settings import MEGABYTE, Settings

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CODES_FILE = ROOT / "docs" / "CODES.md"
CONFIGURATION = ROOT / "docs" / "configuration.md"

# code -> what happened, what to do
JOB_CODES: Mapping[Code, tuple[str, str]] = {
    Code.INVALID_JOB: (
        "A field of the input is missing, unknown or out of bounds.",
        "Correct the field that the message names; nothing was read.",
    ),
    Code.SOURCE_NOT_FOUND: (
        "There is no object or file at the source's address.",
        "Check bucket, key and spelling; a presigned URL may point to an object that has been deleted.",
    ),
    Code.SOURCE_DENIED: (
        "The source may not be read: wrong or expired credentials, or an address the worker does not talk to.",
        "Check the keys and their s3:GetObject, or sign the URL anew; private addresses need `ALLOW_PRIVATE_SOURCES`.",
    ),
    Code.SOURCE_TOO_LARGE: (
        "The source has more bytes, pages or pixels than the worker accepts.",
        "Raise `MAX_SOURCE_BYTES`, `MAX_PAGES` or `MAX_IMAGE_PIXELS`, or split or scale the file.",
    ),
    Code.SOURCE_UNSUPPORTED: (
        "The content is no PDF, PNG, JPEG, WebP or TIFF, whatever the name says, or its address is of an unknown kind.",
        "Convert the file; for an address, use s3://, https:// or data:.",
    ),
    Code.DAMAGED: (
        "The file, or the page that is named, is broken beyond what can be repaired.",
        "Send it anew, or save it from another program; the other pages of the document are read.",
    ),
    Code.ENCRYPTED: (
        "The PDF needs a password, or the one that was sent is wrong.",
        "Send it in `password`.",
    ),
    Code.PAGE_RANGE: (
        "`pages` or `slice` names pages that the document does not have.",
        "Correct the range; as a warning, those that exist were read.",
    ),
    Code.OUTPUT_MISSING: (
        "There is nowhere to put what was read, or too much of it was asked for inline.",
        "Set `output`, or `BUCKET_NAME` on the endpoint.",
    ),
    Code.OUTPUT_DENIED: (
        "The output may not be written or listed, or does not exist.",
        "Check the bucket's name and the keys' s3:PutObject, s3:GetObject and s3:ListBucket.",
    ),
    Code.STORE_UNAVAILABLE: (
        "A store or a host did not answer, or not in time.",
        "Send the same job again: pages that were read are kept.",
    ),
    Code.ENGINE_DEAD: (
        "The engine ended, or could not be started; pages that it left are `unread`.",
        "Send the same job again: it goes on where it stopped. Look into the worker's log when it comes again.",
    ),
    Code.ENGINE_MEMORY: (
        "The engine has no memory left for the work; pages that it left are `unread`.",
        "Take a larger GPU, or lower `ENGINE_SEQUENCES` or `dpi`.",
    ),
    Code.WEIGHTS_MISSING: (
        "The model's weights are nowhere, or not all of them.",
        "The message says where they were looked for: bake them into the image, name a folder in `MODEL_DIR`, or set "
        "`ALLOW_DOWNLOAD`.",
    ),
    Code.CANARY: (
        "The engine did not read a known page as it should: driver, model and settings do not fit together.",
        "Do not trust the worker; compare its versions with those of the image.",
    ),
    Code.DEADLINE: (
        "The job's time was over before all pages were read; those that are left are `unread`.",
        "Send the same job again: it goes on where it stopped. Or raise `deadline_s`.",
    ),
    Code.SHUTDOWN: (
        "The worker was told to stop before all pages were read.",
        "Send the same job again: it goes on where it stopped.",
    ),
    Code.ENDPOINT_DENIED: (
        "The endpoint that `scripts/submit.py` sends jobs to refuses them.",
        "Check its id and `RUNPOD_API_KEY`; the message has the endpoint's answer.",
    ),
    Code.ENDPOINT_UNAVAILABLE: (
        "The endpoint that `scripts/submit.py` sends jobs to cannot be reached, or is too busy for too long.",
        "The same command again goes on where it stopped. Lower `--in-flight` where it is busy.",
    ),
    Code.JOB_LOST: (
        "The endpoint ended a job or forgot it before it had a result, as often as `--tries` allows.",
        "Look into the endpoint's log. The same command again reads the pages that are missing.",
    ),
    Code.INTERNAL: (
        "Something that nobody foresaw: a bug.",
        "Report it with the traceback that the worker's log has under the job's id.",
    ),
}
PAGE_CODES: Mapping[Code, tuple[str, str]] = {
    Code.LOOP: (
        "The answer repeats itself.",
        "Look at the page; another `mode` or `dpi` often helps.",
    ),
    Code.TRUNCATED: (
        "The answer was cut at the token limit.",
        "Raise `sampling.max_tokens` or lower `dpi`.",
    ),
    Code.EMPTY: (
        "Nothing was read on a page that has ink.",
        "Look at the page: it may be a drawing or a photograph, or too faint.",
    ),
    Code.UNGROUNDED: (
        "The answer does not say where on the page its text stands.",
        "The text is kept without boxes; read the page again in another `mode`.",
    ),
    Code.RENDER_CRASH: (
        "The page ended the process that worked on it, twice.",
        "Send the same job again: it tries this page once more and reads no other. Where it ends so again, save the "
        "file from another program.",
    ),
    Code.RENDER_TIMEOUT: (
        "The page took longer than one piece of work may.",
        "Send the same job again: it tries this page once more and reads no other. Where it ends so again, raise "
        "`WORKER_TIMEOUT_S` or lower `dpi`.",
    ),
    Code.ENGINE_CRASH: (
        "The engine died while it read the page, more than once, and the last time it read nothing else.",
        "Send the same job again: it tries this page once more and reads no other. Where it ends so again, try another "
        "`mode` or `dpi`, and report the page.",
    ),
    Code.RENDER_MEMORY: (
        "The page took more memory than one piece of work may; its process was ended.",
        "Raise `WORKER_MEMORY_BYTES` where the machine has more, or lower `dpi`; a small file that needs so much was "
        "made to harm.",
    ),
    Code.PIXEL_LIMIT: (
        "The page was drawn smaller than asked for, to stay within the limit.",
        "It was read; raise `MAX_PAGE_PIXELS` where small print was lost.",
    ),
    Code.ENGINE_REFUSED: (
        "The engine could not take a prompt.",
        "The worker's log has the engine's words. With `task: custom`, check the prompt; otherwise report it.",
    ),
    Code.UNREADABLE_SCRIPT: (
        "The scan is in a script that the engine cannot read; nothing is invented.",
        "Read it with an engine that knows the script.",
    ),
    Code.DENSE_PAGE: (
        "The page has too many lines for the layout model and was read along its white space.",
        "Its words are there; check the order of its columns.",
    ),
}
MEANINGS = {**JOB_CODES, **PAGE_CODES}


def main() -> None:
    README.write_text(with_tables(README.read_text()))
    CODES_FILE.write_text(codes())
    CONFIGURATION.write_text(configuration())


def with_tables(text: str) -> str:
    """The README's text with its tables made anew."""
    for name, table in (("settings", settings_table()), ("presets", presets_table())):
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{table}{end}{after}"
    return text


def configuration() -> str:
    """The text of docs/configuration.md."""
    return f"""# Configuration

Every setting is an environment variable, read once at start; an empty one counts as not set. `make docs` writes this
page from `settings.py` and `engine_settings.py`. `RUNPOD_LOG_LEVEL`, `RUNPOD_INIT_TIMEOUT` and so on are RunPod's.

{settings_table()}
## Presets

`PRESET` is the GPU's memory in GB; `auto` asks the GPU. Each number can be set alone.

{presets_table()}"""


def presets_table() -> str:
    rows = ["| `PRESET` | prompts at once | tokens a step | context | numbers |", "|---|---|---|---|---|"]
    for name, preset in PRESETS.items():
        numbers = ", ".join(filter(None, (preset.dtype, preset.quantization and f"{preset.quantization} weights")))
        cells = (f"`{name}`", preset.sequences, preset.batched_tokens, preset.context, numbers)
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows) + "\n"


def settings_table() -> str:
    rows = ["| environment | default | meaning |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        rows.append(f"| `{name.upper()}` | {shown(field.default)} | {field.description} |")
    return "\n".join(rows) + "\n"


def shown(default: object) -> str:
    """A default as a reader writes it; megabytes in full would hide the number."""
    if default is None or isinstance(default, SecretStr):
        return "–"
    if isinstance(default, int) and not isinstance(default, bool) and default >= MEGABYTE and default % MEGABYTE == 0:
        return f"{default // MEGABYTE} MiB"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def codes() -> str:
    """The text of docs/CODES.md."""
    return f"""# Codes

Every problem of a result has one of these codes, an error's message begins with one, and the list is closed.
The message beside it names the field, file or page. `make docs` writes this page from `scripts/make_docs.py`.

## Jobs and documents

{_table(JOB_CODES)}
## Pages

As a warning, the page was read all the same; as an error, it was lost.

{_table(PAGE_CODES)}"""


def _table(meanings: Mapping[Code, tuple[str, str]]) -> str:
    rows = [f"| `{code}` | {happened} | {advice} |" for code, (happened, advice) in meanings.items()]
    return "\n".join(["| code | what happened | what to do |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    main()

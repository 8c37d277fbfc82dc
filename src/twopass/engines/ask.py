"""Ask the engine, and keep no more of an answer than one about a page can have."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from twopass.document import Problem, Severity
from twopass.engines.interface import Completion, Engine, Prompt
from twopass.errors import Code

# Characters: a job may ask for 8,192 tokens (job.Sampling). A token of prose has about four characters and the longest
# tag nine, so that no answer has 32 for each of its tokens. What a server sends beyond is no reading of a page.
MAX_ANSWER = 8192 * 32


class Answer(NamedTuple):
    completion: Completion
    problem: Problem | None  # the answer was cut


async def engine(engine: Engine, prompt: Prompt, page: int, *, runs_model: bool) -> Answer:
    """Return the engine's answer; one that is too long is cut, and counts as one that reached the token limit.

    Without a model, the answer is our own and is not cut.
    """
    completion = await engine.generate(prompt)
    length = len(completion.text)
    if length <= MAX_ANSWER or not runs_model:
        return Answer(completion, None)
    message = (
        f"page {page}: an answer has {length} characters, of which the first {MAX_ANSWER} are used, because no page "
        "has so many; check the page, and the model behind the engine"
    )
    cut = replace(completion, text=completion.text[:MAX_ANSWER], finish_reason="length")
    return Answer(cut, Problem(code=Code.ANSWER_TOO_LONG, severity=Severity.WARNING, page=page, message=message))

"""What reading one page needs, in both passes: its pixels, what the job asks for, and the engine that answers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from twopass.document import Element, Problem, RawCompletion
from twopass.engines.interface import MAX_ANSWER, Completion, Engine, Prompt, build_sampling, to_raw_completion
from twopass.errors import Code
from twopass.families.interface import Family, Question, Rung
from twopass.job import Job
from twopass.pages import picture_page
from twopass.pages.rendered_page import PagePointer, RenderedPage
from twopass.pages.shared_pixels import Pixels
from twopass.runtime.page_pool import PagePool
from twopass.settings import MISSED_QUESTIONS


class Answer(NamedTuple):
    """An engine's answer, as it is recorded, and a warning if it was cut."""

    completion: Completion
    recorded: RawCompletion
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True)
class PageContext:
    """A rendered page and its reader. The ids of its prompts begin with `source_key`; equal files have equal keys.

    `missed_questions`: most questions about text that pass 1 missed.
    """

    rendered: RenderedPage
    source_key: str
    job: Job
    engine: Engine
    family: Family
    page_pool: PagePool
    missed_questions: int = MISSED_QUESTIONS

    @property
    def number(self) -> int:
        return self.rendered.page.number

    async def ask(
        self,
        name: str,
        question: Rung | Question,
        image: Pixels,
        draft: str,
        *,
        page: PagePointer | None = None,
        priority: int = 0,
    ) -> Answer:
        """Ask the engine about an image of the page. An answer that is too long counts as one that reached the limit.

        The id of the prompt ends with `name`; `draft` is used if the answer repeats text of the image.
        """
        job, family = self.job, self.family
        prompt = Prompt(
            id=f"{self.source_key}/{name}",
            text=question.prompt,
            image=image,
            page=page,
            mode=question.mode or job.mode,
            max_crops=job.max_crops or family.crops.default,
            language=job.language,
            sampling=build_sampling(family.sampling, job.sampling.model_dump(exclude_none=True), question.sampling),
            priority=priority,
            loop_check=family.is_looping,
            draft=draft if question.is_transcript else "",
        )
        completion = await self.engine.generate(prompt)
        length, runs_model = len(completion.text), family.canary is not None  # else the answer is our own
        if length <= MAX_ANSWER or not runs_model:
            return Answer(completion, to_raw_completion(prompt, completion))
        what = (
            f"an answer has at least {length} characters, of which the first {MAX_ANSWER} are used, because no page "
            "has so many; check the page, and the model behind the engine"
        )
        problem = Problem.warning(self.number, Code.ANSWER_TOO_LONG, what)
        cut = replace(completion, text=completion.text[:MAX_ANSWER], finish_reason="length")
        return Answer(cut, to_raw_completion(prompt, cut), (problem,))

    async def find_picture(self) -> Element | None:
        """The page's ink as one picture; None if the page shows a line of script. Raises WorkerDied."""
        return await self.page_pool.call(picture_page.find_picture, self.rendered.pixels, self.number)

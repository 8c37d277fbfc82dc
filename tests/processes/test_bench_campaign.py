"""scripts/bench campaign: a run that is killed and resumed, simulated time, and priced requests."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from scripts.bench import campaign
from scripts.bench.campaign import PeakRate, SimulatedLoop
from scripts.bench.s3_server import Corpus


def test_a_killed_campaign_is_resumed(tmp_path: Path) -> None:
    """Both runs together write every page of the corpus, and the second begins with the documents that are left."""
    options = [
        "--documents",
        "40",
        "--pages",
        "2000",
        "--workers",
        "2",
        "--stop-at",
        "0.5",
        "--counted",
        "3",
        "--no-s3",
    ]

    campaign.main([*options, "--json", str(tmp_path / "facts.json")])

    facts = json.loads((tmp_path / "facts.json").read_text())["campaign"]
    pages = facts["first"]["pages_written"] + facts["resumed"]["pages_written"]
    total = Corpus(40, 2000).total_pages
    assert total <= pages < 2 * total  # jobs that ended unseen when the first run was killed are not in its ledger
    assert (facts["first"]["documents_ended"], facts["resumed"]["documents_ended"]) == (20, 40)
    assert facts["counting"]["again_ms"] < facts["counting"]["first_ms"]


def test_simulated_time_does_not_pass_while_code_runs() -> None:
    """An hour passes at once, and threads are waited for."""

    async def sleep() -> float:
        loop = asyncio.get_running_loop()
        await asyncio.gather(asyncio.sleep(3600), asyncio.to_thread(sum, range(10)))
        return loop.time()

    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        assert runner.run(sleep()) == pytest.approx(3600, abs=1)


def test_the_peak_is_that_of_any_ten_seconds() -> None:
    """Five events within ten seconds, spread over two tens of seconds."""
    rate = PeakRate()
    for now in (0, 8, 9, 11, 12, 17, 40):
        rate.count(now)

    assert (rate.total, rate.peak) == (7, 5)


def test_requests_are_priced_by_operation() -> None:
    """A million pages with one PUT and one GET each cost 5.40 dollars; what pages need can be left out."""
    requests = campaign.Requests({("PUT", "checkpoint of a page"): 10**6, ("GET", "source"): 10**6})

    assert campaign.price(requests) == pytest.approx(5.4)
    assert campaign.price(requests, besides=campaign.OF_PAGES) == pytest.approx(0.4)

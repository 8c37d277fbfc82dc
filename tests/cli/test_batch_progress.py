"""Files and pages of a batch, counted by folder."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from twopass.cli.reporters import BarState, BatchProgress
from twopass.telemetry.progress import Tracker

FILES = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(1, 9)), min_size=1, max_size=12)  # folder, pages


@given(FILES, st.randoms(use_true_random=False))
def test_a_folder_is_done_with_its_last_file(files: list[tuple[str, int]], random: object) -> None:
    """However files of several folders overlap, each bar counts its own and is full exactly at the end."""
    bars: list[BarState] = []
    batch = BatchProgress({number: folder for number, (folder, _) in enumerate(files)}, bars.append)

    steps = []
    for number, (_, pages) in enumerate(files):
        tracker = Tracker(batch.start(number))
        tracker.count_document(pages)
        steps += [(number, tracker)] * pages
    random.shuffle(steps)  # type: ignore[attr-defined]
    left = dict(enumerate(pages for _, pages in files))
    for number, tracker in steps:
        tracker.finish_pages(1)
        left[number] -= 1
        if not left[number]:
            batch.finish(number)

    for folder in {folder for folder, _ in files}:
        shares = [bar.share or 0.0 for bar in bars if bar.name == folder]
        pages = [count for name, count in files if name == folder]
        last = next(bar for bar in reversed(bars) if bar.name == folder)
        assert all(share < 1 for share in shares[:-1]) and shares[-1] == 1
        assert last.note == f"{len(pages)}/{len(pages)} files, {sum(pages)} pages"
    assert batch.pages_done == batch.pages_counted == sum(pages for _, pages in files)


def test_a_folder_says_how_far_documents_are_that_are_written() -> None:
    """Only while their pages are all read and their artefacts are not; a single document's bar says the same."""
    bars: list[BarState] = []
    trackers = [Tracker(listener) for listener in map(BatchProgress({0: "x", 1: "x"}, bars.append).start, (0, 1))]
    for tracker in trackers:
        tracker.expect_documents(1)
        tracker.count_document(1)
    trackers[0].finish_pages(1)
    with trackers[0].track_parts(3) as finish_part:
        finish_part()
        assert bars[-1].note == "0/2 files, 1 pages, writing 1/3" and bars[-1].counts["parts_total"] == 3
        assert BarState.of_job("a", trackers[0].now).note == "1/1 pages, assembling 1/3"
        finish_part()
        finish_part()
    trackers[0].finish()

    assert bars[-1].note == "0/2 files, 1 pages"

"""Format what the suite measured as a table: stock vLLM, twopass, their ratio and the goals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple


class Row(NamedTuple):
    """One line of the table: where its figures are in the JSON, and the goals for an H200."""

    title: str
    ours: str
    stock: str = ""
    at_least: float | None = None
    at_most: float | None = None
    times: float | None = None  # how many times as fast as stock


ROWS = (
    Row("pass 1, A4, 500 tokens, pages/s", "pass1_500.twopass", "pass1_500.stock_async", at_least=45, times=2),
    Row("pass 1, the mix, pages/s", "pass1_mix.twopass", "pass1_mix.stock_async", at_least=30, times=2),
    Row("whole jobs, the mix, pages/s", "job_mix.pages_per_s", at_least=20),
    Row("whole jobs against the engine alone", "job_mix.share_of_engine", at_least=0.9),
    Row("crops of 600², 60 tokens, a second", "crops_per_s.twopass", "crops_per_s.stock_async", at_least=400),
    Row(
        "decoder with the ban, 256 at once, tokens/s",
        "decoder_tokens_per_s.twopass",
        "decoder_tokens_per_s.stock",
        at_least=45000,
    ),
    Row("encoder, ms a page", "encoder_ms.twopass", "encoder_ms.stock", at_most=8),
    Row("process start to ready, warm, s", "ready_s.warm", at_most=15),
    Row("processor, the engine's process, ms a page", "engine_process_cpu_ms_per_page", at_most=5),
    Row("processor, jobs' process, ms a page", "job_mix.cpu_ms_per_page.main", at_most=25),
    Row("processor, the engine core, ms a page", "job_mix.cpu_ms_per_page.core", at_most=40),
    Row("a page alone, s", "job_mix.latency_s.1_pages", at_most=2.5),
    Row("19 pages alone, s", "job_mix.latency_s.19_pages", at_most=8),
)
HEADER = f"{'':44}{'vLLM':>10}{'twopass':>10}{'ratio':>7}  goal on an H200"


def render_table(results: dict[str, Any]) -> str:
    """How drafts were simulated, one line for each of ROWS, then all other figures under their names."""
    figures = dict(flatten_figures(results))
    in_rows = {name for row in ROWS for name in (row.ours, row.stock)}
    others = (f"{name:44}{value}" for name, value in figures.items() if name not in in_rows)
    return "\n".join((*_describe_drafts(results), HEADER, *(_render_row(row, figures) for row in ROWS), "", *others))


def _describe_drafts(results: dict[str, Any]) -> Iterator[str]:
    """Yield a line for each stage of which vLLM simulated how many drafts are accepted."""
    for stage, facts in results.get("stages", {}).items():
        if acceptance := facts.get("asked", {}).get("acceptance"):
            yield f"{stage}: {facts['asked']['drafts']} drafts; simulated: a decoder step yields {acceptance:g} tokens"


def flatten_figures(results: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number under its dotted name, except how the stages were run."""
    for name, value in results.items():
        if isinstance(value, dict):
            yield from flatten_figures(value, f"{prefix}{name}.")
        elif isinstance(value, int | float) and not prefix.startswith("stages."):
            yield prefix + name, value


def _render_row(row: Row, figures: dict[str, float]) -> str:
    ours, stock = figures.get(row.ours), figures.get(row.stock)
    ratio = (stock / ours if row.at_most else ours / stock) if ours and stock else None
    goals = (
        _render_goal("≥ {:,}", ours, row.at_least), _render_goal("≤ {:,}", ours, row.at_most, lower_is_better=True),
        _render_goal("≥ {:g} times", ratio, row.times),
    )  # fmt: skip
    cells = f"{_render_cell(stock):>10}{_render_cell(ours):>10}{_render_cell(ratio and round(ratio, 1)):>7}"
    return f"{row.title:44}{cells}  {'; '.join(filter(None, goals))}".rstrip()


def _render_cell(value: float | None) -> str:
    return "–" if value is None else f"{value:,}"


def _render_goal(text: str, value: float | None, goal: float | None, lower_is_better: bool = False) -> str:
    if goal is None:
        return ""
    missed = 0.0 if value is None else (value / goal - 1 if lower_is_better else 1 - value / goal)
    return text.format(goal) + (f", missed by {missed:.1%}" if missed > 0 else "")

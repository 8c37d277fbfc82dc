"""The acceptance run: its stages in order, until one fails."""

from __future__ import annotations

from itertools import chain

from twopass.acceptance import model_stages, optional_stages
from twopass.acceptance.checks import Check, has_failed
from twopass.acceptance.plan import Plan


def run(plan: Plan) -> list[Check]:
    """Run the stages until one fails, and return all checks; raises EngineError if an engine does not start."""
    checks: list[Check] = []
    # Rates of a folder that is there need no model.
    stages = () if plan.artefacts and not plan.tune else model_stages.run(plan)
    for stage in chain(stages, optional_stages.run(plan)):
        plan.report(stage)
        checks += stage
        if has_failed(stage):
            break
    return checks

"""Where a running loop stands, for whoever shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kb_evolve.live import Progress

if TYPE_CHECKING:
    from kb_evolve.loop import Loop


def progress_of(loop: Loop, stop: str = "", reason: str = "") -> Progress:
    """The loop at this moment; `stop` and `reason` when it has ended."""
    building, measuring, queued = loop.pipeline.running()
    return Progress(
        run=loop.run.name,
        problem=loop.run.problem_id,
        evaluations=loop.budget.evaluations,
        attempts=loop.budget.attempts,
        elapsed_s=loop.budget.elapsed_s,
        evaluations_limit=loop.budget.limits.evaluations,
        eta_s=loop.budget.eta_s(),
        best=loop.population.best(),
        islands={island.number: island.best for island in loop.population.islands() if island.best},
        verdicts=loop.verdicts,
        thinking=len(loop.asking.thinking),
        building=building,
        measuring=measuring,
        queued=queued,
        stopping=loop.parts.stop.requested,
        device=loop.run.device,
        at_work=tuple((what, work.candidate.id) for what, work in loop.pipeline.at_work()),
        island_count=loop.config.population.islands,
        failed=loop.failed,
        usd=loop.parts.usd(),
        stop=stop,
        reason=reason,
    )

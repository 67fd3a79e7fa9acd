"""Candidates on their way to a verdict: build, measure, measure again; no store, no population.

Builds overlap each other and the one measurement. What a broken judge or a noisy machine costs is
handled here: NO_VERDICT is measured again twice, a JudgeError is retried once.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from fitness.binaries import binary_sha256
from fitness.evaluation import Evaluation, Job, JudgeError, Verdict
from islands.candidate import Candidate
from islands.duels import Wanted
from kb_evolve.annotate import annotate
from kb_evolve.executors import Pools
from kb_evolve.judging import Bench
from kb_evolve.known import BINARY
from problems.roofline import Costs

log = logging.getLogger(__name__)

NO_VERDICT_RETRIES = 2
JUDGE_RETRIES = 1


@dataclass(slots=True)
class Work:
    """One candidate between its recording and its telling."""

    candidate: Candidate
    job: Job
    artifact: Any = None
    evaluation: Evaluation | None = None
    """The newest answer of the workbench."""
    first: Evaluation | None = None
    """The answer that made it a new best; `evaluation` is then a second, fresh one."""
    wanted: Wanted | None = None
    """Why a candidate that was told before is measured afresh; None for one that is yet to be told."""
    followers: list[Candidate] = field(default_factory=list)
    """Candidates with the same source, told with the same evaluation."""
    binary_sha256: str = ""
    """Of what its build compiled; empty where that is not known."""
    is_known: bool = False
    """In order: an earlier candidate has the same program; `evaluation`, where set, is another run's."""
    noisy: int = 0
    judge_failures: int = 0


class Pipeline:
    """The works in flight; `wait` on `futures`, then `advance` each that is done."""

    def __init__(
        self,
        workbench: Bench,
        pools: Pools,
        costs: Costs | None = None,
        twin_of: Callable[[Candidate, str], Evaluation | None] | None = None,
    ) -> None:
        """`twin_of`: the evaluation of a candidate that was told and compiled to the same binary, given that hash."""
        self._twin_of = twin_of
        self._workbench = workbench
        self._pools = pools
        self._costs = costs
        self.building: dict[Future[Any], Work] = {}
        self.measuring: dict[Future[Any], Work] = {}

    @property
    def futures(self) -> list[Future[Any]]:
        return [*self.building, *self.measuring]

    def running(self) -> tuple[int, int, int]:
        """Builds and measurements at work, and how many of both wait for a thread."""
        building = sum(future.running() for future in self.building)
        measuring = sum(future.running() for future in self.measuring)
        return building, measuring, len(self.futures) - building - measuring

    def at_work(self) -> list[tuple[str, Work]]:
        """What is being built and measured now, not what waits for a thread."""
        stages = (("measuring", self.measuring), ("building", self.building))
        return [(name, work) for name, stage in stages for future, work in stage.items() if future.running()]

    def works(self) -> list[Work]:
        """What is in flight, in no order."""
        return [*self.building.values(), *self.measuring.values()]

    def start(self, work: Work) -> None:
        """Queues the build, the measurement follows."""
        self.building[self._pools.building.submit(self._workbench.build, work.job)] = work

    def again(self, work: Work) -> None:
        """Queues a fresh, complete measurement: at once where there is an artifact, else after a build."""
        work.job = dataclasses.replace(work.job, incumbent_ms=None, fresh=True, profile=work.job.device != "cpu")
        work.noisy = 0
        if work.artifact is None:
            self.start(work)
        else:
            self._measure(work)

    def advance(self, future: Future[Any]) -> Work | None:
        """The work of a future that is done, if it has its evaluation now; None while it goes on.

        Raises JudgeError when the judge has failed twice on the same work.
        """
        if future in self.building:
            return self._built(future, self.building.pop(future))
        return self._measured(future, self.measuring.pop(future))

    def cancel_queued(self) -> None:
        """Forgets what waits for a thread and every build; keeps the measurement that is running."""
        for future in list(self.building):
            future.cancel()
            del self.building[future]
        for future in list(self.measuring):
            if future.cancel():
                del self.measuring[future]

    def _built(self, future: Future[Any], work: Work) -> Work | None:
        try:
            work.artifact = future.result()
        except JudgeError as error:
            self._excuse(work, error)
            self.start(work)
            return None
        if work.artifact.failure is not None:
            work.evaluation = annotate(work.artifact.failure, work.job, self._costs)
            return work
        if (twin := self._twin(work)) is not None:
            work.evaluation = annotate(twin, work.job, self._costs)
            return work
        self._measure(work)
        return None

    def _twin(self, work: Work) -> Evaluation | None:
        work.binary_sha256 = binary_sha256(getattr(work.artifact, "folder", ""))
        if self._twin_of is None or not work.binary_sha256 or work.wanted is not None:
            return None
        return self._twin_of(work.candidate, work.binary_sha256)

    def _measured(self, future: Future[Any], work: Work) -> Work | None:
        try:
            found: Evaluation = future.result()
            if work.binary_sha256:
                found = dataclasses.replace(found, features={**found.features, BINARY: work.binary_sha256})
            work.evaluation = annotate(found, work.job, self._costs)
        except JudgeError as error:
            self._excuse(work, error)
            self._measure(work)
            return None
        if work.evaluation.verdict is Verdict.NO_VERDICT and work.noisy < NO_VERDICT_RETRIES:
            work.noisy += 1
            log.info("no verdict, measuring again id=%s try=%d", work.candidate.id, work.noisy)
            self._measure(work)
            return None
        return work

    def _measure(self, work: Work) -> None:
        future = self._pools.measuring.submit(self._workbench.measure, work.job, work.artifact)
        self.measuring[future] = work

    def _excuse(self, work: Work, error: JudgeError) -> None:
        work.judge_failures += 1
        if work.judge_failures > JUDGE_RETRIES:
            raise error
        log.warning("judge failed, trying once more id=%s error=%s", work.candidate.id, error)

"""The search: opens what it needs, drives the loop, says what it found."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.evaluation import JudgeError
from islands.candidate import Evaluated
from islands.population import Population
from islands.run import Run
from islands.store import Store, open_store
from kb_evolve.budget import Budget, earlier_seconds
from kb_evolve.config import Config, ConfigError, Layer, flags_layer, merge, read_toml, resolve
from kb_evolve.executors import Pools, local_pools
from kb_evolve.judging import Bench, check_judge, open_workbench
from kb_evolve.live import Progress
from kb_evolve.loop import Loop, Parts, StopReason
from kb_evolve.models import Models, check_models, names_of, open_models, split_names
from kb_evolve.notify import check_notify, open_notifier
from kb_evolve.progress import progress_of
from kb_evolve.seeding.gather import gather
from kb_evolve.seeding.seed import Gathered
from kb_evolve.seeding.told import Seeded, is_seeded, seeded
from kb_evolve.session import Audited, admission, first_kernel, last_config, open_run, run_name, stored_costs
from kb_evolve.standing import line_of, stream
from kb_evolve.stop import Stop
from kb_evolve.targets import check_searchable, settle
from kb_evolve.tracking import check_tracking, open_tracking
from mutators import registry
from mutators.choose import Chooser, ChooserConfig
from problems.problem import Problem

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a search found, and why it stopped."""

    run: Run
    stop: StopReason
    reason: str
    """Why it stopped, in a sentence."""
    best: Evaluated | None
    first: Evaluated | None
    """The seed, as it was judged in this run."""
    lineage: tuple[Evaluated, ...]
    """From the seed to the best, first parents only."""
    evaluations: int
    attempts: dict[str, int]
    """Attempts by outcome."""
    verdicts: dict[str, int]
    """Candidates by verdict."""
    elapsed_s: float
    spent: dict[str, Any] | None = None
    """What models cost (mutators.ledger.Ledger.summary); None where none was named."""
    seeded: Seeded | None = None
    """What became of `seeds`; None where none were named."""


class Search:
    """A search for a faster kernel; `run` blocks until its budget is used, and goes on when called again."""

    def __init__(
        self,
        problem: str | Problem = "",
        *,
        config: str | Path | None = None,
        workbench: Bench | None = None,
        show: Callable[[Progress], None] | None = None,
        only_seeds: bool = False,
        **options: Any,
    ) -> None:
        """Options are the configuration's keys: `evaluations=60`, `backend="cpp"`, `run="night"`.

        `workbench` stands in for the real one, such as `fitness.replay.Replay`; the caller closes it. With `only_seeds`
        the first kernels are judged and nothing is proposed. Raises ConfigError for an option that does not exist or
        cannot be used.
        """
        layers = [read_toml(config)] if config is not None else []
        ref = problem.id if isinstance(problem, Problem) else problem
        if ref:
            layers.append({"run": {"problem": ref}})
        self.given: Layer = merge(*layers, flags_layer(options))
        self.config = resolve(self.given)
        self._problem = problem if isinstance(problem, Problem) else None
        self._workbench = workbench
        self.show = show or _show_nothing
        self.warn: Callable[[str], None] = log.warning
        """Told what a person should know and no error is."""
        self._only_seeds = only_seeds

    def run(self) -> Outcome:
        """Searches, or goes on with the stored run of that name, until a limit or a signal stops it.

        Raises ProblemError, ConfigError and StoreError for what cannot be used, JudgeError when the judge
        fails twice on one candidate: what was told until then is kept, and calling again goes on.
        """
        problem = self.load_problem()
        self._check(problem)
        with open_store(self.config.run.db) as store:
            gathered = self._gather(store, problem)
            run, config = open_run(store, problem, self.given, _unaudited if self._workbench else admission)
            with store.lease(run.id), Stop() as stop, contextlib.ExitStack() as stack:
                workbench = self._workbench or stack.enter_context(open_workbench(config))
                stop.on_second(workbench.close)
                models = open_models(config, store, run, problem)
                thinkers = config.run.thinkers if models else int(not config.run.in_order)
                pools = local_pools(thinkers=thinkers, builders=config.judge.builders)
                stack.callback(pools.close)
                if models is not None:
                    stack.callback(models.close)
                parts = self._parts(run, problem, config, store, workbench, pools, stop, models)
                loop = Loop(dataclasses.replace(parts, show=self._watched(stack, config, run, store)))
                end, reason = _drive(loop, first_kernel(problem, config, models=models is not None), gathered)
                return _outcome(loop, end, reason, models.ledger.summary() if models else None)

    def _watched(
        self, stack: contextlib.ExitStack, config: Config, run: Run, store: Store
    ) -> Callable[[Progress], None]:
        """What is told where the run stands: the display, and whom the configuration names."""
        notifier = stack.enter_context(open_notifier(config, run, self.warn))
        tracking = stack.enter_context(open_tracking(config, run, store.path, self.warn))

        def show(progress: Progress) -> None:
            self.show(progress)
            notifier(progress)
            tracking(progress)

        return show

    def _check(self, problem: Problem) -> None:
        """Raises what is wrong with the request before anything is opened or written."""
        if self._workbench is None:
            check_judge(self.config)
            check_searchable(settle(self.config).run)
        first_kernel(problem, self.config, models=bool(names_of(self.config)))
        check_models(self.config)
        check_notify(self.config)
        check_tracking(self.config)
        if not names_of(self.config):
            open_chooser(self.config)

    def _gather(self, store: Store, problem: Problem) -> Gathered | None:
        """What `seeds` name; None for a run that has none, or has its own already.

        ConfigError when they give nothing and there is no other first kernel.
        """
        config = settle(self.config)
        stored = store.find_run(run_name(problem, config))
        if stored is not None:
            config = resolve(last_config(store, stored), self.given)
        if not config.run.seeds or (stored is not None and is_seeded(store, stored)):
            return None
        known = first_kernel(problem, config, models=bool(names_of(config)))
        gathered = gather(config.run.seeds, store, problem, config, known=known)
        if not gathered.seeds and known is None and not names_of(config):
            raise ConfigError(f"--seeds gave no kernel to begin with: {'; '.join(gathered.left_out) or 'none is new'}")
        return gathered

    def load_problem(self) -> Problem:
        """The problem; ProblemError when it cannot be found or read."""
        if self._problem is not None:
            return self._problem
        from problems.catalogue import load

        return load(self.config.run.problem, self.config.run.kernelbench or None)

    def _parts(
        self,
        run: Run,
        problem: Problem,
        config: Config,
        store: Store,
        workbench: Bench,
        pools: Pools,
        stop: Stop,
        models: Models | None,
    ) -> Parts:
        return Parts(
            run=run,
            problem=problem,
            config=config,
            store=store,
            population=Population(config.population, run.id, run.seed, fetch=store.told_of),
            chooser=open_chooser(config, models),
            workbench=workbench,
            pools=pools,
            budget=Budget(
                dataclasses.replace(config.budget, attempts=0) if self._only_seeds else config.budget,
                evaluations=store.counts(run.id).measured,
                earlier_s=earlier_seconds(store.events(run.id), store.attempts(run.id)),
            ),
            stop=stop,
            show=self.show,
            costs=stored_costs(run),
            thinkers=config.run.thinkers if models else 1,
            seeders=models.seeders if models else (),
            insights=models.insights if models else None,
            embeddings=models.embeddings if models else None,
            paid_out=models.paid_out if models else str,
            usd=(lambda: models.ledger.spent_usd) if models else _no_usd,
        )


def open_chooser(config: Config, models: Models | None = None) -> Chooser:
    """The configured mutators behind one chooser; ProposalError for a name or an option that is not known."""
    given = {"transform": {"allow_fast_math": config.judge.allow_fast_math}}
    free, asking = split_names(config.mutators.use)
    if asking and not names_of(config):
        raise ConfigError(f"mutator {asking[0]} asks a language model: name one with --model")
    mutators = [
        registry.create(name, {**given.get(name, {}), **config.mutators.options.get(name, {})})
        for name in (free if config.mutators.use else registry.names())
    ]
    mutators += models.operators if models is not None else ()
    chosen = config.mutators
    return Chooser(
        mutators, ChooserConfig(chosen.policy, chosen.weights, usd_per_device_hour=chosen.usd_per_device_hour)
    )


def _drive(loop: Loop, source: str | None, gathered: Gathered | None) -> tuple[StopReason, str]:
    """Runs the loop between its `started` and `stopped` events."""
    loop.store.add_event(loop.run.id, "started", {"config": loop.config.to_layer()})
    try:
        loop.resume()
        loop.plant(source)
        if gathered is not None:
            loop.sow(gathered)
        end, reason = loop.drive()
    except JudgeError as error:
        _record_stop(loop, "judge_failed", str(error))
        raise
    _record_stop(loop, end, reason)
    return end, reason


def _record_stop(loop: Loop, stop: str, reason: str) -> None:
    """The `stopped` event; its digest is what a replay of the history must give."""
    best = loop.population.best()
    fields = {"stop": stop, "reason": reason, "best": best.candidate.id if best else None}
    loop.store.add_event(loop.run.id, "stopped", {**fields, "digest": loop.population.digest()})
    loop.parts.show(progress_of(loop, stop, reason))


def _outcome(loop: Loop, end: StopReason, reason: str, spent: dict[str, Any] | None) -> Outcome:
    store, run_id, best = loop.store, loop.run.id, loop.population.best()
    counts = store.counts(run_id)
    line = line_of(store, run_id, best.candidate.id) if best else []
    return Outcome(
        run=loop.run,
        stop=end,
        reason=reason,
        best=best,
        first=next((one for one in stream(store, run_id) if one.candidate.generation == 0), None),
        lineage=(*line[:-1], best) if best else (),
        evaluations=loop.budget.evaluations,
        attempts=counts.attempts,
        verdicts=counts.verdicts,
        elapsed_s=loop.budget.elapsed_s,
        spent=spent,
        seeded=seeded(store, loop.run, stream(store, run_id)),
    )


def _unaudited(_: Problem) -> Audited:
    """The audit of a problem that is searched on somebody else's workbench: its code may not be runnable."""
    return Audited()


def _no_usd() -> None:
    """What models cost where none is asked."""


def _show_nothing(_: Progress) -> None:
    """The display of a search that is driven from Python."""

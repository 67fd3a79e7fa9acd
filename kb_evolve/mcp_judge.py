"""The judge behind the MCP server: a process of its own, one evaluation at a time, given up when nobody waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, TypeVar

import anyio

from fitness.evaluation import Evaluation, JudgeError
from fitness.workbench import Workbench
from kb_evolve.annotate import annotate, find_costs
from kb_evolve.config import Config
from kb_evolve.judging import check_judge, make_job, open_workbench
from problems.problem import Problem

log = logging.getLogger(__name__)
T = TypeVar("T")
Report = Callable[[float, float | None, str | None], Awaitable[None]]
"""Takes seconds so far, None, and what is being done."""

LONGEST_EVALUATION_S = 600.0
"""Building and measuring one kernel; its own limits (30 s a call, 240 s a build) end nearly all much earlier."""
REPORT_EVERY_S = 5.0


def aside(work: Callable[..., T], *arguments: Any) -> asyncio.Future[T]:
    """What `work` returns, from a daemon thread: when it is given up, nothing waits for it."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            found = work(*arguments)
        except BaseException as error:
            with contextlib.suppress(InvalidStateError):
                future.set_exception(error)
        else:
            with contextlib.suppress(InvalidStateError):
                future.set_result(found)

    threading.Thread(target=run, daemon=True, name="aside").start()
    return asyncio.wrap_future(future)


class Judge:
    """The judge of this server: started on first use, one evaluation at a time, ended by `end`."""

    def __init__(self) -> None:
        self._turn, self._guard = asyncio.Lock(), threading.Lock()
        self._bench: Workbench | None = None
        self._device, self._stage = "", ""
        self._ended = False
        self._costs = functools.cache(find_costs)

    async def evaluate(self, config: Config, problem: Problem, source: str, report: Report) -> Evaluation:
        """The judge's answer. When the caller leaves, or after LONGEST_EVALUATION_S, the judge's process is ended."""
        began = time.monotonic()
        async with self._its_turn(began, report):
            gone = threading.Event()
            deadline = time.monotonic() + LONGEST_EVALUATION_S
            working = aside(self._work, config, problem, source, gone)
            try:
                while not (await asyncio.wait([working], timeout=REPORT_EVERY_S))[0]:
                    if time.monotonic() > deadline:
                        raise JudgeError(f"no verdict within {LONGEST_EVALUATION_S:.0f} s ({self._stage}); given up")
                    await report(time.monotonic() - began, None, self._stage)
                return working.result()
            finally:
                if not working.done():
                    with anyio.CancelScope(shield=True):
                        await aside(self._give_up, gone)
                    working.cancel()

    def end(self) -> None:
        """Ends the judge and all that it started; nothing is judged afterwards."""
        self._ended = True
        self._give_up(threading.Event())

    @contextlib.asynccontextmanager
    async def _its_turn(self, began: float, report: Report) -> AsyncIterator[None]:
        """Waits for the evaluations that came before."""
        while True:
            with anyio.move_on_after(REPORT_EVERY_S):
                await self._turn.acquire()
                break
            await report(time.monotonic() - began, None, "waiting for another evaluation")
        try:
            yield
        finally:
            self._turn.release()

    def _give_up(self, gone: threading.Event) -> None:
        with self._guard:
            gone.set()
            bench, self._bench = self._bench, None
        if bench is None:
            return
        try:
            bench.close()
        except Exception as error:  # its judge was just being started; `_work`, which starts it, closes it once more
            log.info("judge not closed at once error=%r", error)

    def _work(self, config: Config, problem: Problem, source: str, gone: threading.Event) -> Evaluation:
        check_judge(config)
        self._stage = "starting the judge"
        bench, job = self._bench_for(config, gone), make_job(problem, source, config)
        try:
            self._stage = "building"
            artifact = bench.build(job)
            if bench is not self._bench:
                raise JudgeError("the evaluation was given up")
            self._stage = "measuring"
            evaluation = bench.measure(job, artifact)
        finally:
            if bench is not self._bench:
                bench.close()  # given up meanwhile: whatever it has started since ends as well
        return annotate(evaluation, job, self._costs(problem) if config.run.device != "cpu" else None)

    def _bench_for(self, config: Config, gone: threading.Event) -> Workbench:
        """The workbench of the device; of another device's the judge is ended first."""
        with self._guard:
            if gone.is_set() or self._ended:
                raise JudgeError("the evaluation was given up")
            if self._bench is not None and self._device != config.run.device:
                self._bench.close()
                self._bench = None
            if self._bench is None:
                self._bench, self._device = open_workbench(config), config.run.device
            return self._bench

"""Where work runs: threads that wait for the workbench, behind `concurrent.futures.Executor`.

The threads only wait: compilers, judge and runners are processes of their own. Any executor whose
futures are standard ones (a cluster's too) can stand in for a pool.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any


class InlineExecutor(Executor):
    """Runs what is submitted at once, in the caller's thread: the order of calls is the order of results."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future that is already done."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@dataclass(frozen=True, slots=True)
class Pools:
    """One executor for each kind of waiting, so that none idles another."""

    thinking: Executor
    building: Executor
    measuring: Executor

    def close(self) -> None:
        """Cancels what has not begun; does not wait for what has."""
        for pool in (self.thinking, self.building, self.measuring):
            pool.shutdown(wait=False, cancel_futures=True)


def local_pools(*, thinkers: int, builders: int) -> Pools:
    """`thinkers` proposals, `builders` builds and exactly one measurement at a time.

    With 0 thinkers, proposals are made in the caller's thread.
    """
    return Pools(
        thinking=ThreadPoolExecutor(thinkers, "think") if thinkers else InlineExecutor(),
        building=ThreadPoolExecutor(builders, "build"),
        measuring=ThreadPoolExecutor(1, "measure"),
    )

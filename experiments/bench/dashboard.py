"""What an open dashboard costs a search, and how soon its pages come.

    python -m experiments.bench.dashboard --out experiments/bench/results/dashboard.json

A search's record is written as a search writes it (an attempt, a program of 4 KB with its outcome, its evaluation, all
committed), at a steady pace, by one process; its CPU seconds and the time of each iteration are taken with and without
a dashboard that three streams and a page, asked for again at every change, keep busy: blocks of the two in turn, so
that a machine's drift touches both. The share of one core that the dashboard itself takes is told, too. Then the pages
of a large run are timed over HTTP, and, where Chromium and Playwright are installed, their first paint.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import click

from experiments.bench.population import PROBLEM, evaluation_of, source_of
from experiments.bench.records import about, set_fields
from fitness.evaluation import PROTOCOL
from islands.candidate import Candidate
from islands.run import Run, new_run_id, utc_now
from islands.store import Store, open_store

EVALUATIONS = 5_000
LARGE = 100_000
BLOCKS = 10
PAGES = 15
"""Answers timed of each page; the first one is told apart."""


def make_run(store: Store, name: str) -> Run:
    """A run without candidates."""
    sha256 = hashlib.sha256(PROBLEM.encode()).hexdigest()
    run = Run(new_run_id(), name, "population", sha256, PROBLEM, "cpp", "cpu", "fp32", {}, 0, {}, "", utc_now())
    store.create_run(run)
    return run


def iterate(store: Store, run: Run, number: int) -> None:
    """What a search writes for one candidate."""
    random = Random(number)
    parents = (f"{run.id}-{random.randrange(number):06d}",) if number >= 4 else ()
    store.open_attempt(run.id, number, number % 4, "bench", parents)
    candidate = Candidate(
        f"{run.id}-{number:06d}", number, number % 4, len(parents), "cpp", source_of(number, random), parents, "bench",
        f"variant {number}",
    )  # fmt: skip
    with store.transaction():
        store.add_candidate(run.id, candidate)
        store.close_attempt(run.id, number, "candidate", usage={"cost_usd": 0.001})
    key = (candidate.source_sha256, run.problem_sha256, "cpu", "fp32", PROTOCOL)
    store.add_evaluation(run.id, candidate.id, evaluation_of(candidate, random), key)


def fill(store: Store, run: Run, first: int, last: int) -> None:
    """Candidates `first` to `last - 1`, five hundred in a transaction."""
    for start in range(first, last, 500):
        with store.transaction():
            for number in range(start, min(start + 500, last)):
                iterate(store, run, number)


@contextlib.contextmanager
def dashboard(db: Path) -> Iterator[tuple[str, int]]:
    """Address and process id of a dashboard in a process of its own."""
    child = subprocess.Popen(
        [sys.executable, "-m", "kb_evolve", "serve", "--db", str(db), "--port", "0"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert child.stdout is not None
        found = re.search(r"(http://\S+?)/ ", child.stdout.readline())
        if found is None:
            raise click.ClickException("the dashboard did not start; see above")
        yield found[1], child.pid
    finally:
        child.terminate()
        child.wait()


def cpu_s(pid: int) -> float:
    """CPU seconds that a process has used, its children not counted (/proc/PID/stat, fields 14 and 15; proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Viewer(threading.Thread):
    """What a browser does with a run's page: follows its stream, and asks for the page at every change."""

    def __init__(self, address: str, run_id: str, asks: bool) -> None:
        super().__init__(daemon=True)
        self.address, self.run_id, self.asks = address, run_id, asks
        self.loads = 0
        self.ended = threading.Event()

    def run(self) -> None:
        import httpx

        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=self.address, timeout=60) as client,
            client.stream("GET", f"/live?run={self.run_id}") as stream,
        ):
            for line in stream.iter_lines():
                if self.ended.is_set():
                    return
                if line.startswith("event: changed") and self.asks:
                    client.get(f"/runs/{self.run_id}")
                    self.loads += 1


def paced(store: Store, run: Run, first: int, count: int, pace_s: float) -> list[float]:
    """Seconds of each iteration, one begun every `pace_s` at most."""
    took = []
    due = time.perf_counter()
    for number in range(first, first + count):
        time.sleep(max(0.0, due - time.perf_counter()))
        began = time.perf_counter()
        iterate(store, run, number)
        took.append(time.perf_counter() - began)
        due = max(due + pace_s, time.perf_counter())
    return took


def slowdown(folder: Path, evaluations: int, pace_s: float) -> dict[str, Any]:
    """A search of `evaluations` in blocks with and without a dashboard."""
    db = folder / "slowdown.db"
    size = evaluations // BLOCKS
    blocks: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    loads = 0
    with open_store(db) as store:
        run = make_run(store, "search")
        for block in range(BLOCKS):
            watched = block % 4 in (1, 2)  # in turn, and early blocks no oftener the one than the other
            with contextlib.ExitStack() as stack:
                viewers: list[Viewer] = []
                pid = 0
                if watched:
                    address, pid = stack.enter_context(dashboard(db))
                    viewers = [Viewer(address, run.id, asks) for asks in (True, False, False)]
                    for viewer in viewers:
                        viewer.start()
                    time.sleep(3)  # the first page of a server is its dearest, and no part of watching
                else:
                    time.sleep(3)
                began_s, began_view_s, began = time.process_time(), cpu_s(pid) if pid else 0.0, time.perf_counter()
                took = paced(store, run, block * size, size, pace_s)
                wall_s = time.perf_counter() - began
                view_s = cpu_s(pid) - began_view_s if pid else 0.0
                for viewer in viewers:
                    viewer.ended.set()
                loads += sum(viewer.loads for viewer in viewers)
            blocks[watched].append(
                {
                    "median_ms": 1e3 * statistics.median(took),
                    "mean_ms": 1e3 * statistics.fmean(took),
                    "wall_s": wall_s,
                    "cpu_s": time.process_time() - began_s,
                    "dashboard_cores": view_s / wall_s,
                }
            )
    return _compared(blocks, evaluations, pace_s, loads)


def _compared(
    blocks: dict[bool, list[dict[str, float]]], evaluations: int, pace_s: float, loads: int
) -> dict[str, Any]:
    means = {
        watched: {name: statistics.fmean(one[name] for one in several) for name in several[0]}
        for watched, several in blocks.items()
    }
    return {
        "evaluations": evaluations,
        "pace_s": pace_s,
        "page_loads": loads,
        "alone": {name: round(value, 4) for name, value in means[False].items()},
        "watched": {name: round(value, 4) for name, value in means[True].items()},
        "wall_slowdown": round(means[True]["wall_s"] / means[False]["wall_s"] - 1, 5),
        "blocks": {"alone": blocks[False], "watched": blocks[True]},
    }


def pages(folder: Path, size: int) -> dict[str, Any]:
    """Milliseconds of the pages of a run of `size` candidates, by the server's own machine."""
    import httpx

    db = folder / f"pages{size}.db"
    with open_store(db) as store:
        run = make_run(store, "large")
        fill(store, run, 0, size)
    middle = f"{run.id}-{size // 2:06d}"
    addresses = {
        "home": "/",
        "run": f"/runs/{run.id}",
        "candidates": f"/runs/{run.id}/candidates",
        "last page": f"/runs/{run.id}/candidates?page={size // 50}",
        "fastest": f"/runs/{run.id}/candidates?order=fastest",
        "by verdict": f"/runs/{run.id}/candidates?verdict=wrong_result",
        "by text": f"/runs/{run.id}/candidates?q=variant+{size // 2}",
        "candidate": f"/candidates/{middle}",
        "comparison": f"/compare?id={middle}&id={run.id}-000001",
        "metrics": "/metrics",
    }
    with dashboard(db) as (address, pid), httpx.Client(base_url=address, timeout=600) as client:
        times = {name: _times_ms(client, path) for name, path in addresses.items()}
        memory = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
        paint = first_paint_ms(address, addresses["run"])
    return {
        "size": size,
        "first_ms": {name: round(several[0], 1) for name, several in times.items()},
        "median_ms": {name: round(statistics.median(several[1:]), 1) for name, several in times.items()},
        "peak_mb": round(int(memory[1]) / 1024) if memory else None,
        "first_paint_ms": paint,
    }


def _times_ms(client: Any, path: str) -> list[float]:
    took = []
    for _ in range(PAGES):
        began = time.perf_counter()
        answer = client.get(path)
        took.append(1e3 * (time.perf_counter() - began))
        if answer.status_code != 200:
            raise click.ClickException(f"{path} answered {answer.status_code}")
    return took


def first_paint_ms(address: str, path: str) -> float | None:
    """First contentful paint of a page in a fresh Chromium; None where it or Playwright is not installed."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    if chromium is None:
        return None
    script = (
        "new Promise(done => new PerformanceObserver(list => done(list.getEntriesByName('first-contentful-paint')[0]"
        ".startTime)).observe({type: 'paint', buffered: true}))"
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        found = []
        for _ in range(5):
            page = browser.new_context().new_page()
            page.goto(address + path)
            found.append(page.evaluate(script))
        browser.close()
    return round(statistics.median(found), 1)


@click.command()
@click.option("--out", required=True, type=click.Path(path_type=Path))
@click.option("--evaluations", default=EVALUATIONS, show_default=True)
@click.option("--pace", "pace_s", default=0.1, show_default=True, help="Seconds from one evaluation to the next.")
@click.option("--size", "sizes", multiple=True, type=int, default=(EVALUATIONS, LARGE), show_default=True)
def main(out: Path, evaluations: int, pace_s: float, sizes: tuple[int, ...]) -> None:
    """Measures and writes the document."""
    with tempfile.TemporaryDirectory(prefix="kb-evolve-dashboard-") as folder:
        found = slowdown(Path(folder), evaluations, pace_s)
        set_fields(out, about=about("cpu"), slowdown=found)
        click.echo(f"slowdown {found['wall_slowdown']:+.2%}, alone {found['alone']}, watched {found['watched']}")
        for size in sizes:
            timed = pages(Path(folder), size)
            set_fields(out, **{f"pages_{size}": timed})
            click.echo(timed)


if __name__ == "__main__":
    main()

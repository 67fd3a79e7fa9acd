"""kill -9 of the whole process tree at random moments of a real run, then the same command.

    python -m experiments.bench.kill --kills 20 --store-kills 1000 --out experiments/bench/results

The store alone is killed more often, see kill_store.py: a real run lives for seconds, its commits take milliseconds.

Checked after every kill: what was told before is still told, in the same order; nobody is told twice; no process of the
tree and no shared memory segment is left. At the end: the population equals a replay of the history.
"""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import psutil

from experiments.bench.kill_store import kill_store
from fitness.machine import device_name
from islands.bouts import replay
from islands.population import Population, PopulationConfig
from islands.store import open_store

RUN = "kill"
GONE_WITHIN_S = 2.0


@click.command()
@click.option("--problem", default="row_variance", show_default=True)
@click.option("--kills", default=20, show_default=True)
@click.option("--evaluations", default=40, show_default=True)
@click.option("--seed", default=1, show_default=True, help="Seeds the moments.")
@click.option(
    "--store-kills", default=1000, show_default=True, help="Kills of a process that only writes to the store."
)
@click.option("--store-seeds", default=5, show_default=True, help="Databases that these are spread over.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/bench/results"), show_default=True)
def main(problem: str, kills: int, evaluations: int, seed: int, store_kills: int, store_seeds: int, out: Path) -> None:
    """Kills a run again and again, lets it finish, and writes kill.json. Exits with 1 when anything was lost."""
    store = kill_store(store_kills, store_seeds)
    click.echo(json.dumps(store), err=True)
    with tempfile.TemporaryDirectory() as folder:
        db = Path(folder) / "kill.db"
        command = [sys.executable, "-m", "kb_evolve", "run", problem, "--db", str(db), "--run", RUN]
        command += ["--evaluations", str(evaluations)]
        found = _kill_again_and_again(command, db, kills, random.Random(seed))
        finished = subprocess.run(command, capture_output=True, text=True)
        found |= {"exit_code": finished.returncode, **_replay(db)}
    about = {"machine": device_name(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()}
    document = {"about": about, "problem": problem, "evaluations": evaluations, **found, "store": store}
    out.mkdir(parents=True, exist_ok=True)
    (out / "kill.json").write_text(json.dumps(document, indent=1) + "\n")
    click.echo(json.dumps(document))
    bad = found["lost"] + found["told_twice"] + found["processes_left"] + found["segments_left"]
    bad += sum(store[name] for name in ("lost", "twice", "findings", "unequal_replays"))
    sys.exit(1 if bad or finished.returncode or not found["equals_replay"] else 0)


def _kill_again_and_again(command: list[str], db: Path, kills: int, moments: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {"kills": kills, "lost": 0, "told_twice": 0, "processes_left": 0, "segments_left": 0}
    told: list[str] = []
    for index in range(kills):
        segments = _segments()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Mostly at work: starting takes some seconds, and an evaluation a second or two.
        time.sleep(moments.uniform(0.5, 4.0) if index % 4 == 0 else moments.uniform(6.0, 14.0))
        tree = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for member in tree:
            if member.is_running():
                os.kill(member.pid, signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(tree, timeout=GONE_WITHIN_S)
        found["processes_left"] += len(alive) + len(_strays())
        found["segments_left"] += len(_segments() - segments)
        now = _told(db)
        found["lost"] += now[: len(told)] != told
        found["told_twice"] += len(now) - len(set(now))
        told = now
        click.echo(f"kill {index + 1}: {len(tree)} processes, {len(told)} told", err=True)
    return {**found, "told_at_last_kill": len(told)}


def _strays() -> list[int]:
    """Processes of ours that have lost their parent."""
    return [
        process.pid
        for process in psutil.process_iter(["ppid", "cmdline"])
        if process.info["ppid"] == 1 and any("fitness." in part for part in process.info["cmdline"] or [])
    ]


def _segments() -> set[str]:
    """Named shared memory: POSIX in /dev/shm, System V in /proc."""
    return {*os.listdir("/dev/shm"), *Path("/proc/sysvipc/shm").read_text().splitlines()[1:]}


def _told(db: Path) -> list[str]:
    if not db.exists():
        return []
    with open_store(db) as store:
        run = store.find_run(RUN)
        return [evaluated.candidate.id for evaluated in store.history(run.id)] if run else []


def _replay(db: Path) -> dict[str, object]:
    with open_store(db, read_only=True) as store:
        run = store.find_run(RUN)
        assert run is not None
        history = store.history(run.id)
        config = {name: value for name, value in run.config["population"].items()}
        population = Population(_population_config(config), run.id, run.seed)
        replay(population, history, store.events(run.id))
        last = [event.fields for event in store.events(run.id) if event.kind == "stopped"][-1]
        return {"told": len(history), "equals_replay": population.digest() == last["digest"], "stop": last["stop"]}


def _population_config(values: dict[str, object]) -> PopulationConfig:
    from kb_evolve.config import resolve

    return resolve({"population": values}).population


if __name__ == "__main__":
    main()

"""What an iteration of the population costs, with everything committed, beside OpenEvolve's database in the same run.

    python -m experiments.bench.population --out experiments/bench/results/population.json

Ours: ask, the attempt, a new program of 4 KB with its outcome, its evaluation (all in SQLite, on the disk) and tell.
OpenEvolve's: sample from an island and add; its controller saves all programs once in `checkpoint_interval`
iterations, so both that share of a save and a whole one (nothing is lost, as with ours) are given. Each size is
measured in a process of its own, whose highest resident memory is told, and then resumed in another.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any

import click

from experiments.bench.records import about
from fitness.evaluation import PROTOCOL, Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.population import Population, PopulationConfig
from islands.run import Run, new_run_id, utc_now
from islands.store import Store, open_store
from kb_evolve.known import BINARY, Known

SIZES = (100, 1_000, 10_000, 100_000)
THEIR_LARGEST = 10_000
ITERATIONS = 200
RUN = "population"
PROBLEM = "class Model: pass\n"
BODY = "\n".join(f"    out[{line}] = in[{line}] * {line}.5f + bias[{line}];" for line in range(82))
"""Of a program of 4 KB."""


def source_of(number: int, random: Random) -> str:
    """A program of 4 KB that no other number gives; half of them ask for vectors."""
    wide = "__m256 wide;" if random.random() < 0.5 else ""
    return (
        f"constexpr int TILE = {number};  // tune: 8 16\n"
        f'extern "C" void f(const float* in, const float* bias, float* out) {{\n{BODY}\n    {wide}\n}}\n'
        f"// variant {number % 97 if random.random() < 0.5 else 0}\n"
    )


def evaluation_of(candidate: Candidate, random: Random) -> Evaluation:
    """A scripted evaluation: seven of ten are correct."""
    fields: dict[str, Any] = {"problem": RUN, "backend": "cpp", "source_sha256": candidate.source_sha256}
    if random.random() < 0.3:
        return Evaluation(Verdict.WRONG_RESULT, f"wrong at element {candidate.number}", log="x" * 500, **fields)
    speedup = 1 + random.random() * (1 + candidate.number / 2_000)
    features = {"threads": random.choice((1, 2)), "binary_sha256": candidate.source_sha256}
    return Evaluation(
        Verdict.CORRECT, "faster than the reference", kernel_ms=1 / speedup,
        kernel_ms_ci=(0.97 / speedup, 1.03 / speedup), reference_ms=1.0,
        speedup=speedup, speedup_ci=(speedup * 0.97, speedup * 1.03),
        peak_mem_bytes=random.randrange(1 << 28), error_ratio=random.random(),
        features=features, **fields,
    )  # fmt: skip


def iterate(store: Store, run: Run, population: Population, number: int) -> None:
    """One iteration: what a ticket gives is recorded and told."""
    random = Random(number)
    parents: tuple[str, ...] = ()
    island, generation = number % 4, 0
    if number >= population.config.islands:
        ticket = population.ask(number)
        parent = ticket.parent.candidate
        island, parents, generation = ticket.island, (parent.id,), parent.generation + 1
    store.open_attempt(run.id, number, island, "bench", parents)
    candidate = Candidate(
        f"{run.id}-{number:06d}", number, island, generation, "cpp", source_of(number, random), parents, "bench"
    )
    with store.transaction():
        store.add_candidate(run.id, candidate)
        store.close_attempt(run.id, number, "candidate", usage={"cost_usd": 0.001})
    evaluation = evaluation_of(candidate, random)
    key = (candidate.source_sha256, run.problem_sha256, "cpu", "fp32", PROTOCOL)
    store.add_evaluation(run.id, candidate.id, evaluation, key)
    population.tell(Evaluated(candidate, evaluation))


def measure(db: Path, size: int) -> dict[str, Any]:
    """Fills a database with `size` candidates, the last ITERATIONS of them committed one by one under the clock."""
    with open_store(db) as store:
        sha256 = hashlib.sha256(PROBLEM.encode()).hexdigest()
        run = Run(
            new_run_id(), RUN, RUN, sha256, PROBLEM, "cpp", "cpu", "fp32", {}, 0, {}, "", utc_now()
        )  # fmt: skip
        store.create_run(run)
        population = Population(PopulationConfig(), run.id, 0, fetch=store.told_of)
        count = min(ITERATIONS, size // 2)
        for first in range(0, size - count, 500):
            with store.transaction():
                for number in range(first, min(first + 500, size - count)):
                    iterate(store, run, population, number)
        began_s, began_wall_s = time.process_time(), time.perf_counter()
        for number in range(size - count, size):
            iterate(store, run, population, number)
        took_s, wall_s = time.process_time() - began_s, time.perf_counter() - began_wall_s
        return {
            "cpu_ms": round(1e3 * took_s / count, 3), "wall_ms": round(1e3 * wall_s / count, 3),
            "peak_mb": peak_mb(), "db_mb": round(db.stat().st_size / 1e6, 1), "digest": population.digest(),
        }  # fmt: skip


def resume(db: Path, size: int) -> dict[str, Any]:
    """Rebuilds the population, and the memory of known programs, from the database."""
    began_s = time.perf_counter()
    with open_store(db) as store:
        opened_s = time.perf_counter() - began_s
        run = store.runs()[0]
        population = Population(PopulationConfig(), run.id, 0, fetch=store.told_of)
        known = Known(store.find_candidate, store.told_of)
        for one in store.stream(run.id):  # as kb_evolve.loop.Loop.resume
            known.add(one.candidate)
            known.add_build(one.candidate, one.evaluation.features.get(BINARY, ""))
            population.tell(one)
            known.add_told(one.candidate, one.evaluation)
        all_s = time.perf_counter() - began_s
    if population.told != size:
        raise click.ClickException(f"expected {size} told candidates in {db}, found {population.told}")
    return {
        "resume_s": round(all_s, 3),
        "open_s": round(opened_s, 3),
        "resume_peak_mb": peak_mb(),
        "digest": population.digest(),
    }


def theirs(folder: Path, size: int) -> dict[str, Any]:
    """The same of OpenEvolve's database: CPU milliseconds of sample and add, and of one save of all programs."""
    from openevolve.config import Config
    from openevolve.database import Program, ProgramDatabase

    config = Config()
    config.database.random_seed = 0
    config.database.population_size = size  # by default it forgets all but 1,000; ours forgets none
    database = ProgramDatabase(config.database)
    count = min(ITERATIONS, size // 2)
    began_s = 0.0
    for number in range(size):
        if number == size - count:
            began_s = time.process_time()
        random = Random(number)
        parent = database.sample_from_island(number % config.database.num_islands)[0] if number else None
        code, score = source_of(number, random), random.random() * (1 + number / 2_000)
        program = Program(
            str(number), code, parent_id=parent.id if parent else None, metrics={"combined_score": score},
            generation=parent.generation + 1 if parent else 0,
        )  # fmt: skip
        database.add(program, iteration=number)
    step_ms = 1e3 * (time.process_time() - began_s) / count
    began_s = time.process_time()
    database.save(str(folder / "theirs"), size)
    save_ms = 1e3 * (time.process_time() - began_s)
    began_wall_s = time.perf_counter()
    ProgramDatabase(config.database).load(str(folder / "theirs"))
    return {
        "cpu_ms": round(step_ms, 3), "save_ms": round(save_ms, 1),
        "cpu_ms_as_its_controller": round(step_ms + save_ms / config.checkpoint_interval, 3),
        "cpu_ms_all_saved": round(step_ms + save_ms, 1), "checkpoint_interval": config.checkpoint_interval,
        "programs_kept": len(database.programs), "resume_s": round(time.perf_counter() - began_wall_s, 3),
        "peak_mb": peak_mb(),
    }  # fmt: skip


def peak_mb() -> float:
    """The highest resident memory of this process so far."""
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)


def in_child(part: str, folder: Path, size: int) -> dict[str, Any]:
    """What one part finds, in a process of its own."""
    command = [sys.executable, "-m", "experiments.bench.population", "--part", part, "--folder", str(folder)]
    done = subprocess.run([*command, "--sizes", str(size)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{part} at {size:,} candidates failed: {done.stderr[-2_000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(size: int) -> dict[str, Any]:
    """One row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = in_child("measure", folder, size)
        again = in_child("resume", folder, size)
        if own.pop("digest") != again.pop("digest"):
            raise click.ClickException(f"at {size:,} candidates the resumed population is another one")
        row = {"candidates": size, "ours": own | again}
        return row | ({"openevolve": in_child("theirs", folder, size)} if size <= THEIR_LARGEST else {})


@click.command()
@click.option("--sizes", "sizes", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--part", type=click.Choice(["measure", "resume", "theirs"]), hidden=True)
@click.option("--folder", type=click.Path(path_type=Path), hidden=True)
@click.option("--note", default="", help="What else the machine did.")
@click.option("--out", type=click.Path(path_type=Path))
def main(sizes: tuple[int, ...], part: str | None, folder: Path | None, note: str, out: Path | None) -> None:
    """Writes the cost of an iteration, memory and resume time by size."""
    if part is not None and folder is not None:
        steps = {"measure": measure, "resume": resume}
        found = theirs(folder, sizes[0]) if part == "theirs" else steps[part](folder / "ours.db", sizes[0])
        return click.echo(json.dumps(found))
    if out is None:
        raise click.UsageError("name the file to write with --out")
    rows = []
    for size in sizes:
        rows.append(compare(size))
        click.echo(json.dumps(rows[-1]), err=True)
    facts = {**about("cpu"), "load_average": os.getloadavg()[1], "note": note}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"about": facts, "source_bytes": 4_000, "rows": rows}, indent=1) + "\n", "utf-8")
    return None


if __name__ == "__main__":
    main()

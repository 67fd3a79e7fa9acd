"""Do islands stay apart, and does a population stay varied?

    python -m experiments.bench.isolation --out experiments/bench/results

Three tables, written to isolation.json. `foreign`: one island of five is made far fitter than the others and nothing
migrates; how many parents come from another island than the one that asks, in ours and in OpenEvolve's own database
where that is installed. `diversity`: 2,000 evaluations on a rugged landscape of invented kernels, several seeds; how
varied islands and the whole population are on the way, with and without migration, against a single population, and
how near to the best known kernel each comes. `policies`: the same for other choices of parents. Exits with 1 where one
of our parents is foreign, or where a population of islands falls below its floor.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import math
import random
import statistics
import sys
from pathlib import Path
from typing import Any

import click

from experiments.bench import records
from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.distance import mean_distance
from islands.policies import PARENTS
from islands.population import Population, PopulationConfig

ISLANDS = 5
TOLD = 1000
"""Programs in the databases whose isolation is measured."""
SLOTS, CHOICES = 12, 6
FAILING = 0.15
NOISE = 0.02
"""Standard deviation of the logarithm of a measured speedup."""
DISTANCE_FLOOR, RESET_FLOOR = 0.55, 0.4
"""Least mean token distance between the elites of all islands together, as a share of the distance between kernels
drawn at random, at any look from the fifth part of the evaluations on. Emptying islands costs variety by its nature."""

ARMS: dict[str, dict[str, Any]] = {
    "single population": {"islands": 1, "migration_every": 0},
    "4 islands, none": {"islands": 4, "topology": "none"},
    "4 islands, ring": {"islands": 4},
    "4 islands, full": {"islands": 4, "topology": "full"},
    "4 islands, random": {"islands": 4, "topology": "random"},
    "4 islands, star": {"islands": 4, "topology": "star"},
    "4 islands, ring, reset after 100": {"islands": 4, "reset_after": 100},
    "4 islands, none, reset after 100": {"islands": 4, "topology": "none", "reset_after": 100},
}
MIXES: dict[str, dict[str, float]] = {
    "best 0.4, cells 0.4, recent 0.2 (default)": PopulationConfig().parents,  # type: ignore[dict-item]
    **{f"{name} only": {name: 1.0} for name in PARENTS},
    "best 0.4, curious 0.4, recent 0.2": {"best": 0.4, "curious": 0.4, "recent": 0.2},
    "best 0.4, novel 0.4, recent 0.2": {"best": 0.4, "novel": 0.4, "recent": 0.2},
    "best 0.4, tournament 0.4, recent 0.2": {"best": 0.4, "tournament": 0.4, "recent": 0.2},
    "best 0.4, rank 0.4, cells 0.2": {"best": 0.4, "rank": 0.4, "cells": 0.2},
}


@click.command()
@click.option("--seeds", default=10, show_default=True, help="Runs of each arm.")
@click.option("--evaluations", default=2000, show_default=True)
@click.option("--policies/--no-policies", default=True, show_default=True, help="Also compare parent policies.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("experiments/bench/results"), show_default=True)
def main(seeds: int, evaluations: int, policies: bool, out: Path) -> None:
    """Measures isolation and diversity and writes isolation.json."""
    document: dict[str, Any] = {"about": records.about("cpu"), "evaluations": evaluations, "seeds": seeds}
    document["foreign"] = {"ours": {name: foreign_ours(name) for name in PARENTS}}
    if importlib.util.find_spec("openevolve") is not None:
        document["foreign"]["openevolve"] = foreign_openevolve()
    document["random_distance"] = round(mean_distance(map(source_of, _random_genes(200))), 3)
    document["diversity"] = {name: _compare(arm, seeds, evaluations) for name, arm in ARMS.items()}
    if policies:
        document["policies"] = {name: _compare({"parents": mix}, seeds, evaluations) for name, mix in MIXES.items()}
    faults = failures(document)
    out.mkdir(parents=True, exist_ok=True)
    (out / "isolation.json").write_text(json.dumps({**document, "faults": faults}, indent=1) + "\n")
    click.echo(json.dumps(document, indent=1))
    for fault in faults:
        click.echo(fault, err=True)
    sys.exit(1 if faults else 0)


def failures(document: dict[str, Any]) -> list[str]:
    """What the document shows that must not be, in sentences."""
    found = [
        f"parents by {policy}: {row['foreign_parents']:.1%} are foreign, must be 0"
        for policy, row in document["foreign"]["ours"].items()
        if row["foreign_parents"] or row["foreign_inspirations"]
    ]
    for name, row in document["diversity"].items():
        floor = document["random_distance"] * (RESET_FLOOR if "reset" in name else DISTANCE_FLOOR)
        if name != "single population" and row["least_distance"] < floor:
            found.append(f"{name}: the mean token distance fell to {row['least_distance']}, floor {floor:.3f}")
    return found


# -- isolation --------------------------------------------------------------------------------------------


def _scores(rng: random.Random) -> list[tuple[int, float]]:
    """(island, speedup) of TOLD programs, round the islands; island 0 is about nine times as fast as the others."""
    return [
        (number % ISLANDS, rng.uniform(0.85, 0.95) * (1 if number % ISLANDS == 0 else 0.1)) for number in range(TOLD)
    ]


def foreign_ours(policy: str) -> dict[str, Any]:
    """Shares of parents and inspirations from another island than the ticket's, over 2,000 tickets."""
    config = PopulationConfig(islands=ISLANDS, migration_every=0, parents={policy: 1.0})
    population, rng = Population(config, "bench000", 1), random.Random(1)
    for number, (island, speedup) in enumerate(_scores(rng)):
        made = Candidate(
            f"bench000-{number:06d}", number, island, 0, "cpp", source_of(_random_gene(rng)) + f"// {number}"
        )
        population.tell(Evaluated(made, _evaluation(made, _random_gene(rng), speedup)))
    tickets = [population.ask(number) for number in range(TOLD, TOLD + 2000)]
    parents = [ticket.parent.candidate.island != ticket.island for ticket in tickets]
    shown = [one.candidate.island != ticket.island for ticket in tickets for one in ticket.inspirations]
    return {"foreign_parents": statistics.mean(parents), "foreign_inspirations": statistics.mean(shown)}


def foreign_openevolve() -> dict[str, Any]:
    """The same of OpenEvolve's database with its default settings and no migration; also without the fit island."""
    from openevolve.config import DatabaseConfig
    from openevolve.database import Program, ProgramDatabase

    config = DatabaseConfig(num_islands=ISLANDS, population_size=10 * TOLD, migration_interval=10**9, random_seed=1)
    database, rng = ProgramDatabase(config), random.Random(1)
    for number, (island, score) in enumerate(_scores(rng)):
        program = Program(str(number), source_of(_random_gene(rng)), metrics={"combined_score": score})
        database.add(program, iteration=number, target_island=island)
    asked = [(number % ISLANDS, *database.sample_from_island(number % ISLANDS)) for number in range(2000)]
    foreign = [(island, parent.metadata["island"] != island) for island, parent, _ in asked]
    shown = [one.metadata["island"] != island for island, _, inspirations in asked for one in inspirations]
    return {
        "version": importlib.metadata.version("openevolve"),
        "foreign_parents": statistics.mean(is_foreign for _, is_foreign in foreign),
        "foreign_parents_of_the_less_fit": statistics.mean(is_foreign for island, is_foreign in foreign if island),
        "foreign_inspirations": statistics.mean(shown),
    }


# -- a landscape of invented kernels ----------------------------------------------------------------------

Gene = tuple[int, ...]
"""One choice for each place of a kernel."""


def _random_gene(rng: random.Random) -> Gene:
    return tuple(rng.randrange(CHOICES) for _ in range(SLOTS))


def _random_genes(count: int) -> list[Gene]:
    rng = random.Random(0)
    return [_random_gene(rng) for _ in range(count)]


def source_of(gene: Gene) -> str:
    """A text with one statement for each place; other choices have other words."""
    return "".join(
        f"auto v{slot} = step{slot}_{choice}(x, n{choice}); y[{slot}] += v{slot} * w{slot * CHOICES + choice};\n"
        for slot, choice in enumerate(gene)
    )


def _chance(*what: object) -> float:
    """In [0, 1), the same for the same arguments."""
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=6).digest(), "big") / 2**48


def true_speedup(landscape: int, gene: Gene) -> float:
    """exp of 4 times the mean over places of a value that depends on the choices there and at the next two, less half.

    An NK landscape with K = 2: Kauffman and Weinberger, J. Theoretical Biology 141 (1989).
    """
    values = [_chance(landscape, slot, *(gene[(slot + step) % SLOTS] for step in range(3))) for slot in range(SLOTS)]
    return math.exp(4 * (statistics.fmean(values) - 0.5))


def _features(gene: Gene) -> dict[str, int]:
    """What the judge would measure: vector width, threads, bytes of the binary and of extra memory."""
    return {
        "vector_bits": (128, 256, 512)[gene[0] % 3],
        "threads": (1, 8)[gene[4] % 2],
        "binary_bytes": (12 + 4 * (gene[8] % 3)) << 10,
        "peak_extra_bytes": (1 + gene[2] + gene[6]) << 21,
    }


def _evaluation(made: Candidate, gene: Gene, speedup: float | None) -> Evaluation:
    common: dict[str, Any] = {"problem": "bench", "backend": "cpp", "source_sha256": made.source_sha256}
    if speedup is None:
        return Evaluation(Verdict.WRONG_RESULT, "invented", **common, max_abs_err=1.0)
    ms, width = 1 / speedup, math.exp(1.96 * NOISE)
    features = _features(gene)
    return Evaluation(
        Verdict.CORRECT,
        "invented",
        **common,
        kernel_ms=ms,
        kernel_ms_ci=(ms / width, ms * width),
        reference_ms=1.0,
        speedup=speedup,
        speedup_ci=(speedup / width, speedup * width),
        error_ratio=1.0,
        peak_mem_bytes=features["peak_extra_bytes"],
        features=features,
    )


# -- a search over it -------------------------------------------------------------------------------------


def _child(rng: random.Random, parent: Gene, other: Gene | None) -> Gene:
    """One or two places changed; in three of ten also about a third of the places from a second parent."""
    gene = list(parent)
    if other is not None and rng.random() < 0.3:
        gene = [theirs if rng.random() < 1 / 3 else own for own, theirs in zip(gene, other, strict=True)]
    for slot in rng.sample(range(SLOTS), rng.choice((1, 2))):
        gene[slot] = rng.randrange(CHOICES)
    return tuple(gene)


class Trial:
    """One search on one landscape, told in the order of its tickets."""

    def __init__(self, config: PopulationConfig, seed: int) -> None:
        self.seed = seed
        self.population = Population(config, f"bench{seed:03d}", seed)
        self.genes: dict[str, Gene] = {}
        self.seen: set[tuple[int, Gene]] = set()
        self.number = 0
        self.best = 0.0
        """The true speedup of the population's best."""
        start = _random_gene(random.Random(seed))
        for made in self.population.seed_candidates(source_of(start), "cpp"):
            self._tell(made, start)

    def step(self) -> None:
        """One new program, as the loop would: what its island has had already is not judged again."""
        for _ in range(200):
            ticket = self.population.ask(self.number)
            rng = random.Random(f"{ticket.seed}:{len(self.seen)}")
            parents = [ticket.parent, *ticket.inspirations[:1]]
            genes = [self.genes[one.candidate.id] for one in parents]
            gene = _child(rng, genes[0], genes[1] if len(genes) > 1 else None)
            if (ticket.island, gene) not in self.seen:
                break
            self.number += 1
        ids, oldest = tuple(one.candidate.id for one in parents), max(one.candidate.generation for one in parents)
        name = f"{self.population.run_id}-{self.number:06d}"
        self._tell(
            Candidate(name, self.number, ticket.island, oldest + 1, "cpp", source_of(gene), ids, "invented"), gene
        )

    def _tell(self, made: Candidate, gene: Gene) -> None:
        rng = random.Random(f"{self.seed}:{made.id}")
        fails = made.generation > 0 and _chance("fails", self.seed, gene) < FAILING
        speedup = None if fails else true_speedup(self.seed, gene) * math.exp(rng.gauss(0, NOISE))
        self.genes[made.id] = gene
        self.seen.add((made.island, gene))
        self.population.tell(Evaluated(made, _evaluation(made, gene, speedup)))
        self.number = max(self.number, made.number) + 1

    def look(self) -> dict[str, float]:
        """How varied it is now, and the true speedup of its best."""
        islands, best = self.population.diversity(), self.population.best()
        elites = list(self.population.cells.values())
        return {
            "island_cells": statistics.fmean(one.cells for one in islands),
            "island_distance": statistics.fmean(one.distance for one in islands),
            "cells": len({cell for _, cell in self.population.cells}),
            "distance": mean_distance(one.candidate.source for one in elites),
            "programs": len({one.candidate.source_sha256 for one in elites}),
            "best": true_speedup(self.seed, self.genes[best.candidate.id]) if best else 0.0,
        }


def _compare(config: dict[str, Any], seeds: int, evaluations: int) -> dict[str, Any]:
    """Medians over seeds at the end, the least distance from the fifth part on, and the bests of every seed.

    `early_bests` are those after a tenth of the evaluations; the seeds are the same for every arm, to be compared in
    pairs.
    """
    runs = [_looks(Trial(PopulationConfig(**config), seed), evaluations) for seed in range(1, seeds + 1)]
    ends = [run[-1] for run in runs]
    return {
        **{name: round(statistics.median(end[name] for end in ends), 3) for name in ends[0]},
        "least_distance": round(min(look["distance"] for run in runs for look in run[len(run) // 5 :]), 3),
        "early_bests": [round(run[len(run) // 10 - 1]["best"], 3) for run in runs],
        "bests": [round(end["best"], 3) for end in ends],
    }


def _looks(trial: Trial, evaluations: int) -> list[dict[str, float]]:
    """What the search looks like after each twentieth of its evaluations."""
    looks = []
    for part in range(1, 21):
        while trial.population.told < part * evaluations // 20:
            trial.step()
        looks.append(trial.look())
    return looks


if __name__ == "__main__":
    main()

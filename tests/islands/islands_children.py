"""What the tests of islands/ run in child processes: functions to fork, and a script."""

from __future__ import annotations

import itertools
import os
import resource
import sys
from pathlib import Path
from random import Random

import islands_makers as makers

from islands.policies import PARENTS
from islands.population import Population, PopulationConfig
from islands.store import Store, StoreError, open_store


def say(text: str) -> None:
    """One line at once, unbuffered: what was said was done."""
    os.write(1, f"{text}\n".encode())


def open_only(db: Path) -> None:
    with open_store(db) as store:
        say(f"findings {len(store.check())}")


def refused(db: Path, read_only: bool, user_id: int) -> None:
    """Opens as user `user_id` (0: as is) and says the error."""
    if user_id:
        os.setgroups([])
        os.setgid(user_id)
        os.setuid(user_id)
    try:
        with open_store(db, read_only):
            say("opened")
    except StoreError as error:
        say(f"StoreError {error}")


def append(db: Path, first: int, last: int, name: str) -> None:
    """Records candidates first..last-1 of run `name`, without a lease."""
    with open_store(db) as store:
        of_run = store.find_run(name)
        assert of_run is not None
        for number in range(first, last):
            candidate = makers.candidate(number, of_run.id, source=f"x = {number % 50}\n")
            makers.record(store, of_run, makers.Evaluated(candidate, makers.evaluation(candidate, 1.5)))


def search(db: Path) -> None:
    """A writer that is killed: resumes run demo, then records for ever and says what was acknowledged."""
    with open_store(db) as store, store.lease("run00000"):
        for attempt in store.attempts("run00000"):
            if attempt.outcome is None:
                store.close_attempt("run00000", attempt.number, "lost")
        for candidate in store.pending("run00000"):
            tell(store, candidate)
        for number in itertools.count(store.next_number("run00000")):
            step(store, makers.candidate(number))


def step(store: Store, candidate: makers.Candidate) -> None:
    store.open_attempt("run00000", candidate.number, candidate.island, "tune", ())
    say(f"attempt {candidate.number}")
    with store.transaction():
        store.add_candidate("run00000", candidate)
        store.close_attempt("run00000", candidate.number, "candidate")
    say(f"candidate {candidate.number}")
    tell(store, candidate)


def tell(store: Store, candidate: makers.Candidate) -> None:
    speedup = 1 + Random(candidate.number).random()
    store.add_evaluation("run00000", candidate.id, makers.evaluation(candidate, speedup), makers.key(candidate))
    say(f"told {candidate.number}")


def hold(db: Path) -> None:
    """Holds the lease of run demo until its standard input closes."""
    with open_store(db) as store, store.lease("run00000"):
        say("held")
        os.read(0, 1)


def limited(db: Path, limit_bytes: int) -> None:
    """Records until no file may grow beyond `limit_bytes`, then says the error and how much was kept."""
    with open_store(db) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
        kept = 0
        try:
            for number in range(10_000):
                store.add_candidate("run00000", makers.candidate(number, source=f"x = {number}\n" * 200))
                kept += 1
        except StoreError as error:
            say(f"{kept} {error}")
            os._exit(0)  # closing would have to write


def mixed() -> PopulationConfig:
    """A configuration with every policy in it, and islands that are reset."""
    parents = dict.fromkeys(PARENTS, 1.0)
    return PopulationConfig(migration_every=5, topology="random", reset_after=4, parents=parents, axes=("memory",))


def account(population: Population) -> str:
    """The digest of a population and the parents that it would give."""
    parents = [population.ask(number).parent.candidate.number for number in range(100, 140)]
    return f"{population.digest()} {parents}"


def rebuilt(db: str | Path) -> None:
    """The account of the population that run demo's history rebuilds."""
    with open_store(db, read_only=True) as store:
        population = Population(mixed(), "run00000", 7)
        for one in store.history("run00000"):
            population.tell(one)
        say(account(population))


if __name__ == "__main__":
    rebuilt(sys.argv[1])

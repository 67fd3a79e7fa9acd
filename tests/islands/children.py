"""What the tests of islands/ run in child processes: `children.py COMMAND DB ARGUMENTS`."""

from __future__ import annotations

import os
import resource
import sys
from random import Random

import makers

from islands.population import Population, PopulationConfig
from islands.store import StoreError, open_store


def say(text: str) -> None:
    """One line at once, unbuffered: what was said was done."""
    os.write(1, f"{text}\n".encode())


def open_only(db: str) -> None:
    with open_store(db) as store:
        say(f"tables {len(store.check())}")


def refused(db: str, mode: str, user_id: str) -> None:
    """Opens as user `user_id` (0: as is) and says the error."""
    if int(user_id):
        os.setgid(int(user_id))
        os.setuid(int(user_id))
    try:
        with open_store(db, read_only=mode == "read"):
            say("opened")
    except StoreError as error:
        say(f"StoreError {error}")


def append(db: str, first: str, last: str, name: str) -> None:
    """Records candidates first..last-1 of run `name`, without a lease."""
    with open_store(db) as store:
        of_run = store.find_run(name)
        assert of_run is not None
        for number in range(int(first), int(last)):
            candidate = makers.candidate(number, of_run.id, source=f"x = {number % 50}\n")
            makers.record(store, of_run, makers.Evaluated(candidate, makers.evaluation(candidate, 1.5)))


def search(db: str) -> None:
    """A writer that is killed: resumes run demo, then records for ever and says what was acknowledged."""
    with open_store(db) as store, store.lease("run00000"):
        of_run = makers.run()
        for attempt in store.attempts(of_run.id):
            if attempt.outcome is None:
                store.close_attempt(of_run.id, attempt.number, "lost")
        for candidate in store.pending(of_run.id):
            tell(store, candidate)
        number = store.next_number(of_run.id)
        while True:
            candidate = makers.candidate(number)
            store.open_attempt(of_run.id, number, candidate.island, "tune", ())
            say(f"attempt {number}")
            with store.transaction():
                store.add_candidate(of_run.id, candidate)
                store.close_attempt(of_run.id, number, "candidate")
            say(f"candidate {number}")
            tell(store, candidate)
            number += 1


def tell(store: makers.Store, candidate: makers.Candidate) -> None:
    speedup = 1 + Random(candidate.number).random()
    store.add_evaluation(
        "run00000", candidate.id, makers.evaluation(candidate, speedup), makers.key(candidate)
    )
    say(f"told {candidate.number}")


def hold(db: str) -> None:
    """Holds the lease of run demo until its standard input closes."""
    with open_store(db) as store, store.lease("run00000"):
        say("held")
        sys.stdin.read()


def limited(db: str, limit_bytes: str) -> None:
    """Records until no file may grow beyond `limit_bytes`, then says the error and how much was kept."""
    with open_store(db) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit_bytes), int(limit_bytes)))
        kept = 0
        try:
            for number in range(10_000):
                store.add_candidate("run00000", makers.candidate(number, source=f"x = {number}\n" * 200))
                kept += 1
        except StoreError as error:
            say(f"{kept} {error}")
            os._exit(0)  # closing would have to write


def digest(db: str) -> None:
    """The digest of the population that run demo's history rebuilds."""
    with open_store(db, read_only=True) as store:
        population = Population(PopulationConfig(migration_every=5), "run00000", 7)
        for one in store.history("run00000"):
            population.tell(one)
        say(population.digest())


COMMANDS = {
    one.__name__: one for one in (open_only, refused, append, search, hold, limited, digest)
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])

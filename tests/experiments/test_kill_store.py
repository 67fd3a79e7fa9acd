"""Killed at random moments, a writer of the store loses nothing acknowledged; the benchmark does it 1,000 times."""

from __future__ import annotations

import os
from pathlib import Path

from experiments.bench.kill_store import kill_store

MEMORY = Path("/dev/shm")


def test_twenty_kills_lose_nothing_and_the_live_population_equals_a_replay(tmp_path: Path) -> None:
    found = kill_store(kills=20, seeds=2, within=MEMORY if os.access(MEMORY, os.W_OK) else tmp_path)
    assert found["kills"] == 20 and found["acknowledged"] > 20
    assert {name: found[name] for name in ("lost", "twice", "findings", "unequal_replays")} == {
        "lost": 0,
        "twice": 0,
        "findings": 0,
        "unequal_replays": 0,
    }

"""Recorded tuning spaces: read, searched, counted."""

from __future__ import annotations

import gzip
import json
import statistics
from pathlib import Path

import pytest

from experiments.landscapes import kernel_tuner, landscape
from experiments.landscapes.bench import OWN, search, summary, table
from experiments.landscapes.contenders import BARREN, CONTENDERS, Referee, is_there, orders_of, start_of
from experiments.landscapes.landscape import Landscape, LandscapeError
from mutators.tunables import find_tunables, values_of

PARAMS = {"block": [32, 64, 128, 256, 512, 1024], "tile": [1, 2, 4, 8], "method": ["row", "column"], "unused": [7]}


def recorded_ms(block: int, tile: int, method: str) -> float | str:
    """Fastest at 256, 4, row: 1 ms. More than 2048 in all does not run."""
    if block * tile > 2048:
        return "RuntimeFailedConfig"
    steps = abs(block.bit_length() - 9) + abs(tile.bit_length() - 3)
    return 1.0 + 0.3 * steps + 0.5 * (method == "column")


def cache() -> dict:
    """A record in Kernel Tuner's form; blocks of 32 with tiles of 1 are forbidden and hence not in it."""
    entries = {}
    for block in PARAMS["block"]:
        for tile in PARAMS["tile"]:
            for method in PARAMS["method"]:
                if (block, tile) != (32, 1):
                    values = {"block": block, "tile": tile, "method": method, "unused": 7}
                    entries[",".join(map(str, values.values()))] = {**values, "time": recorded_ms(block, tile, method)}
    return {"device_name": "a GPU", "tune_params": PARAMS, "cache": entries}


@pytest.fixture
def recorded(tmp_path) -> Landscape:
    path = tmp_path / "toy" / "gpu.json.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress(json.dumps(cache()).encode()))
    return kernel_tuner.read(path)


def values(block: int, tile: int, method: str) -> dict[str, str]:
    return {"block": str(block), "tile": str(tile), "method": method}


def test_a_cache_file_becomes_choices_and_times(recorded):
    assert (recorded.name, recorded.device, recorded.size) == ("toy/gpu", "a GPU", 48)
    assert list(recorded.choices) == ["block", "tile", "method"], "a tunable with one value is no choice"
    assert recorded.time(values(256, 4, "row")) == recorded.optimum == 1.0
    assert recorded.near == 1


def test_what_failed_and_what_the_record_leaves_out_are_both_failures(recorded):
    assert recorded.time(values(1024, 8, "row")) is None
    assert recorded.time(values(32, 1, "row")) is None
    assert recorded.failed == sum(one["time"] == "RuntimeFailedConfig" for one in cache()["cache"].values()) > 0


def test_results_in_t4_form_give_the_same_landscape(recorded, tmp_path):
    results = []
    for one in cache()["cache"].values():
        time = one.pop("time")
        is_correct = isinstance(time, float)
        measurements = [{"name": "time", "value": time, "unit": "ms"}] if is_correct else []
        invalidity = "correct" if is_correct else "runtime"
        results.append({"configuration": one, "invalidity": invalidity, "measurements": measurements})
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": results}))
    found = kernel_tuner.read(path)
    times = {frozenset(zip(found.choices, key, strict=True)): time for key, time in found.times.items()}
    assert times == {frozenset(zip(recorded.choices, key, strict=True)): ms for key, ms in recorded.times.items()}


@pytest.mark.parametrize("text", ["{", "[]", '{"cache": {}}', '{"tune_params": {"a": [1, 2]}, "cache": {}}'])
def test_a_file_of_another_form_is_an_error_that_names_it(tmp_path, text):
    path = tmp_path / "wrong.json"
    path.write_text(text)
    with pytest.raises(LandscapeError, match="wrong"):
        kernel_tuner.read(path)


def test_a_value_that_our_operators_would_misread_is_an_error(tmp_path):
    path = tmp_path / "words.json"
    entry = {"flags": "-O2 -g", "time": 1.0}
    path.write_text(json.dumps({"tune_params": {"flags": ["-O2 -g", "-O3"]}, "cache": {"1": entry}}))
    with pytest.raises(LandscapeError, match="flags"):
        kernel_tuner.read(path)


def test_a_landscape_is_the_same_after_writing_and_reading(recorded, tmp_path):
    landscape.write(recorded, tmp_path / "own.json", {"machine": "a GPU"})
    assert landscape.read(tmp_path / "own.json") == recorded
    assert json.loads((tmp_path / "own.json").read_text())["about"] == {"machine": "a GPU"}


def test_a_source_declares_what_the_landscape_has(recorded):
    source = recorded.source(values(64, 2, "column"))
    assert values_of(source) == values(64, 2, "column")
    assert {one.name: one.choices for one in find_tunables(source)} == recorded.choices


def test_a_configuration_is_paid_for_once_whether_it_works_or_not(recorded):
    referee = Referee(recorded, budget=10)
    for asked in (values(32, 2, "row"), values(1024, 8, "row"), values(32, 2, "row"), values(1024, 8, "row")):
        referee.judge(asked)
    assert (len(referee.seen), referee.barren, referee.reached_at) == (2, 2, None)
    assert referee.judge(values(256, 4, "row")) == 1.0
    assert referee.reached_at == 3 and referee.is_over


def test_a_search_ends_at_its_budget_or_when_it_only_repeats_itself(recorded):
    poor = Referee(recorded, budget=1)
    poor.judge(values(32, 2, "row"))
    assert poor.is_over
    stuck = Referee(recorded, budget=9)
    for _ in range(BARREN + 1):
        stuck.judge(values(32, 2, "row"))
    assert stuck.is_over and stuck.reached_at is None


def test_ordered_tunables_are_offered_in_order_and_others_as_names(recorded):
    assert orders_of(recorded) == {
        "block": ("32", "64", "128", "256", "512", "1024"),
        "tile": ("1", "2", "4", "8"),
        "method": (),
    }


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_contender_starts_alike_finds_the_optimum_and_repeats_itself_for_a_seed(recorded, name):
    if not is_there(name):
        pytest.skip("optuna is not installed")
    runs = []
    for _ in range(2):
        referee = Referee(recorded, budget=48)
        CONTENDERS[name](referee, start_of(recorded, 3), 3)
        runs.append(list(referee.seen.items()))
    assert runs[0] == runs[1]
    assert dict(zip(recorded.choices, runs[0][0][0], strict=True)) == start_of(recorded, 3)
    assert runs[0][-1][1] == 1.0


def needed(one: Landscape, contender: str, seeds: int) -> float:
    """Median of evaluations, those that never came near counted as all."""
    runs = [search(one, contender, one.size, seed)["reached_at"] or one.size for seed in range(seeds)]
    return statistics.median(runs)


def test_tune_needs_fewer_evaluations_than_random_search(recorded):
    assert needed(recorded, "ours: tune", 9) < 0.8 * needed(recorded, "random", 9)


def test_quartiles_beyond_the_limit_are_not_given():
    runs = [{"reached_at": at, "ratio": 1.0, "judged": 9, "cpu_s": 0.1} for at in (8, None, 2, 4, None)]
    found = summary(runs, limit=9)
    assert (found["lower"], found["median"], found["upper"], found["reached"]) == (4, 8, None, 3)


def test_the_page_shows_the_table_of_the_committed_results():
    root = Path(__file__).parents[2]
    document = json.loads((root / "experiments" / "results" / "landscapes.json").read_text())
    assert table(document) in (root / "docs" / "landscapes.md").read_text()


@pytest.mark.parametrize("path", sorted(OWN.glob("*.json")), ids=lambda path: path.stem)
def test_the_landscapes_kept_here_can_be_searched(path):
    own = landscape.read(path)
    assert own.size == len(own.times) + own.failed, "every configuration was measured"
    assert search(own, "ours: tune", own.size, 1)["reached_at"] is not None

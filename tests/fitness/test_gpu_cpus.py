"""The judge of a GPU keeps one core for itself, another one for each device."""

from __future__ import annotations

from pathlib import Path

import pytest

from fitness.gpu.cpus import divided


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Eight CPUs on four cores: 0 and 4 are one core, 1 and 5 another, and so on."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def test_the_judge_gets_a_whole_core_and_the_others_the_rest(topology):
    assert divided("cuda:0", frozenset(range(8)), topology) == ({3, 7}, {0, 1, 2, 4, 5, 6})


def test_judges_of_several_devices_do_not_meet_on_one_core(topology):
    first, _ = divided("cuda:0", frozenset(range(8)), topology)
    second, rest = divided("cuda:1", frozenset(range(8)), topology)
    assert second == {2, 6} and rest == {0, 1, 4, 5} and not first & second


def test_only_cpus_that_we_may_use_are_given_away(topology):
    assert divided("cuda:0", frozenset({0, 1, 2, 3, 4}), topology) == ({0, 4}, {1, 2, 3})


@pytest.mark.parametrize(("device", "count"), [("cuda:0", 3), ("cuda:3", 8), ("cuda:7", 8)])
def test_where_there_are_too_few_everybody_shares(device, count, topology):
    some = frozenset(range(count))
    assert divided(device, some, topology) == (some, some)


def test_without_a_topology_each_cpu_is_a_core(tmp_path):
    assert divided("cuda:0", frozenset(range(4)), tmp_path) == ({3}, {0, 1, 2})

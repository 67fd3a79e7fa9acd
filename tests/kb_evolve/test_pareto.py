"""`kb-evolve top --pareto`: the table, the sparkline, the JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from fitness.replay import Landscape, Replay
from islands.fronts import Front, Measured, Place, Reference
from kb_evolve.cli import add_commands, cli
from kb_evolve.commands.pareto import fronts_text, sparkline
from kb_evolve.search import Search
from problems.problem import Problem

add_commands()
PLACE = Place("00", "cpu", "some CPU", "fp32", "1")


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def front(*times_ms: float, energy: float = float("inf")) -> Front:
    """Kernels that get faster and need more memory each: all are members."""
    found = Front(Reference(16.0, 64.0 * 2**20, energy_mj=8.0 if energy < 1e9 else None))
    for number, time_ms in enumerate(times_ms):
        objectives = (time_ms, (1.0 + number) * 2**20, 1.0, energy)
        name = f"aaaaaaaa-{number:06d}"
        ci = (15 / time_ms, 17 / time_ms)
        found.add(Measured(name, "demo", "toy", PLACE, "cpp", "tune", f"t{number}", objectives, 16.0, 16 / time_ms, ci))
    return found


@pytest.fixture
def searched(tmp_path: Path, toy_problem: Problem) -> Path:
    """A database with one short search."""
    path = tmp_path / "pareto.db"
    Search(toy_problem, db=str(path), run="toy", workbench=Replay(Landscape(reference_ms=4000.0)), evaluations=30).run()
    return path


def test_the_front_of_a_search_holds_its_fastest_kernel(searched: Path) -> None:
    fastest = json.loads(kb("top", "--db", searched, "--limit", "1", "--json").stdout)["top"][0]
    (found,) = json.loads(kb("top", "--pareto", "--db", searched, "--json").stdout)["fronts"]
    assert fastest["id"] in {member["id"] for member in found["front"]}
    assert found["hypervolume"] > 0
    volumes = [volume for _, _, volume in found["hypervolume_over_time"]]
    assert volumes == sorted(volumes) and volumes[-1] == found["hypervolume"]
    assert fastest["id"] in kb("top", "toy", "--pareto", "--db", searched).stdout


def test_a_problem_without_a_correct_kernel_is_told_apart(searched: Path) -> None:
    result = kb("top", "softmax", "--pareto", "--db", searched)
    assert result.exit_code == 0
    assert "no correct kernel of softmax; its problems: toy" in result.stdout


def test_the_longest_bar_belongs_to_the_slowest_kernel() -> None:
    lines = fronts_text({PLACE: front(8.0, 4.0, 2.0)}, limit=10).splitlines()
    bars = [line.count("█") for line in lines if line.startswith("aaaaaaaa")]
    assert bars == [2, 5, 10]


def test_kernels_beyond_the_limit_are_counted() -> None:
    assert "and 2 more: --limit 3 shows all" in fronts_text({PLACE: front(8.0, 4.0, 2.0)}, limit=1)


def test_energy_has_a_column_only_where_it_was_measured() -> None:
    assert " mJ" not in fronts_text({PLACE: front(8.0)}, limit=1)
    assert "  mJ" in fronts_text({PLACE: front(8.0, energy=2.0)}, limit=1)


def test_the_sparkline_rises_to_full_height() -> None:
    line = sparkline(front(8.0, 4.0, 2.0, 1.0))
    assert len(line) == 4
    assert list(line) == sorted(line) and line[-1] == "█"


def test_a_front_that_gains_nothing_has_no_sparkline() -> None:
    assert sparkline(front(32.0)) == ""

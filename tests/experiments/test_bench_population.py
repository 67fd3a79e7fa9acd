"""The population's benchmark: both sides run, and what is resumed is what was measured."""

from __future__ import annotations

from pathlib import Path

from experiments.bench.population import measure, resume, theirs


def test_a_measured_database_resumes_to_the_same_population(tmp_path: Path) -> None:
    own, again = measure(tmp_path / "ours.db", 24), resume(tmp_path / "ours.db", 24)
    assert own["digest"] == again["digest"]
    assert own["cpu_ms"] > 0 and again["resume_s"] >= again["open_s"]


def test_openevolves_database_keeps_what_it_is_given(tmp_path: Path) -> None:
    found = theirs(tmp_path, 24)
    assert found["programs_kept"] > 12
    assert found["cpu_ms_all_saved"] > found["cpu_ms_as_its_controller"] > found["cpu_ms"]

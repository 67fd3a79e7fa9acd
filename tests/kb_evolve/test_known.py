"""Programs that come again: known by their source before a build, by their binaries and what calls them after it."""

from __future__ import annotations

import dataclasses

import pytest

import islands.novelty
from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated
from islands.novelty import fingerprint
from kb_evolve.known import Known

SOURCE = '''from torch.utils.cpp_extension import load_inline
TEXT = r"""
int f(int value) { return value; }  // as it was
"""
library = load_inline("f", TEXT, functions=None)
'''
RENAMED = SOURCE.replace("value", "other")
OTHER_FLAGS = SOURCE.replace("functions=None", "functions=None, extra_cflags=['-O3']")
SHA = "5" * 64


def candidate(number: int, island: int = 0, source: str = SOURCE) -> Candidate:
    return Candidate(f"run00000-{number:06d}", number, island, generation=0, backend="cpp", source=source)


def new(told: tuple[Evaluated, ...] = ()) -> Known:
    """One that reads from candidates 1 to 3, and from what was told."""
    recorded = {one.id: one for one in map(candidate, range(1, 4))}
    return Known(recorded.get, lambda ids: [one for one in told if one.candidate.id in ids])


@pytest.fixture
def known() -> Known:
    """Candidate 1 of island 0 is recorded and built."""
    seen = new()
    seen.add(candidate(1))
    seen.add_build(candidate(1), SHA)
    return seen


@pytest.mark.parametrize("source", [SOURCE, SOURCE.replace("as it was", "as it is"), SOURCE + "\n\n# end\n"])
def test_the_same_program_is_known_whatever_its_comments(known: Known, source: str) -> None:
    assert known.name_of(0, source) == "run00000-000001"


def test_another_program_and_another_island_are_new(known: Known) -> None:
    assert known.name_of(0, RENAMED) is None
    assert known.name_of(1, SOURCE) is None


def test_the_first_of_equals_gives_its_name(known: Known) -> None:
    known.add(candidate(2))
    known.add_build(candidate(2), SHA)
    assert known.name_of(0, SOURCE) == known.name_of_binary(0, SOURCE, SHA) == "run00000-000001"
    assert known.numbers == {1, 2}


def test_a_program_that_compiles_to_the_same_is_known_after_its_build(known: Known) -> None:
    assert known.name_of_binary(0, RENAMED, SHA) == "run00000-000001"
    assert known.name_of_binary(0, RENAMED, "6" * 64) is None


def test_the_same_binary_called_in_another_way_is_new(known: Known) -> None:
    assert known.name_of_binary(0, OTHER_FLAGS, SHA) is None


def test_binaries_are_known_by_island_or_on_any(known: Known) -> None:
    assert known.name_of_binary(1, RENAMED, SHA) is None
    assert known.name_of_binary(None, RENAMED, SHA) == "run00000-000001"


def test_what_has_no_hash_is_never_the_same(known: Known) -> None:
    known.add_build(candidate(3), "")
    assert known.name_of_binary(0, SOURCE, "") is None


def test_a_program_is_read_once_however_often_it_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the thinking thread, when it is accepted, and when it is recorded; on every island."""
    read: list[str] = []
    monkeypatch.setattr(islands.novelty, "fingerprint", lambda source: read.append(source) or fingerprint(source))
    islands.novelty.digests.cache_clear()
    seen = new()
    assert seen.name_of(0, SOURCE) is None and seen.name_of(0, SOURCE) is None
    seen.add(candidate(1))
    seen.add(candidate(2, island=1))
    assert seen.name_of(1, SOURCE) == "run00000-000002" and read == [SOURCE]


def evaluation(verdict: Verdict, reason: str = "") -> Evaluation:
    found = Evaluation(Verdict.WRONG_RESULT, reason, "p", "cpp", candidate(1).source_sha256)
    times = {
        "kernel_ms": 1.0,
        "kernel_ms_ci": (1.0, 1.0),
        "reference_ms": 2.0,
        "speedup": 2.0,
        "speedup_ci": (2.0, 2.0),
    }
    return dataclasses.replace(found, verdict=verdict, **(times if verdict is Verdict.CORRECT else {}))


def test_what_a_source_was_told_is_read_again_until_it_fails_later() -> None:
    told = Evaluated(candidate(1), evaluation(Verdict.CORRECT, "fast"))
    seen = new((told,))
    sha256 = told.candidate.source_sha256
    assert seen.evaluation_of(sha256) is None and seen.judged() == []
    seen.add_told(told.candidate, told.evaluation)
    assert seen.evaluation_of(sha256) == told.evaluation and seen.judged() == [told.evaluation]
    seen.amend(told)
    assert seen.evaluation_of(sha256) == told.evaluation
    failed = evaluation(Verdict.WRONG_RESULT, "wrong at last")
    seen.amend(dataclasses.replace(told, evaluation=failed))
    assert seen.evaluation_of(sha256) == failed and seen.judged() == [failed]


def test_no_verdict_is_as_if_nothing_had_been_told() -> None:
    told = Evaluated(candidate(1), evaluation(Verdict.NO_VERDICT, "noise"))
    seen = new((told,))
    seen.add_told(told.candidate, told.evaluation)
    assert seen.evaluation_of(told.candidate.source_sha256) is None and seen.judged() == []

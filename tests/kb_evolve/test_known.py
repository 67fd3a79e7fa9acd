"""Programs that come again: known by their source before a build, by their binaries and what calls them after it."""

from __future__ import annotations

import pytest

import kb_evolve.known
from islands.candidate import Candidate
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


@pytest.fixture
def known() -> Known:
    """Candidate 1 of island 0 is recorded and built."""
    seen = Known()
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
    monkeypatch.setattr(kb_evolve.known, "fingerprint", lambda source: read.append(source) or fingerprint(source))
    seen = Known()
    assert seen.name_of(0, SOURCE) is None and seen.name_of(0, SOURCE) is None
    seen.add(candidate(1))
    seen.add(candidate(2, island=1))
    assert seen.name_of(1, SOURCE) == "run00000-000002" and read == [SOURCE]

"""Doctor names what is missing and never shows a key's value."""

from __future__ import annotations

from pathlib import Path

import pytest

from islands.store import open_store
from kb_evolve import doctor


def test_keys_are_found_by_name_and_their_values_stay_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in doctor.MODEL_KEYS:
        monkeypatch.delenv(name, raising=False)
    assert doctor.check_keys().found.startswith("none")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    check = doctor.check_keys()
    assert "OPENAI_API_KEY" in check.found and "secret" not in repr(check)


def test_a_missing_compiler_is_a_no_with_advice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_tool("g++", ["--version"], "install it")
    assert not check.is_fine and check.advice == "install it"
    assert not doctor.check_backends().is_fine


def test_a_compiler_that_fails_is_a_no(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "g++"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    check = doctor.check_tool("g++", ["--version"], "install it")
    assert not check.is_fine and "does not work" in check.found


def test_a_database_is_whole_missing_or_corrupt(tmp_path: Path) -> None:
    db = tmp_path / "kb.db"
    assert "does not exist yet" in doctor.check_database(str(db)).found
    assert not db.exists()
    open_store(db).close()
    assert doctor.check_database(str(db)).is_fine
    db.write_bytes(b"garbage" * 999)
    assert not doctor.check_database(str(db)).is_fine

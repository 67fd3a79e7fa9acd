"""What the tests of exports share: a problem that a bundle can hold, a searched database, a bundle of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from fitness.replay import Landscape, Replay
from islands.run import Run
from islands.store import open_store
from kb_evolve.cli import add_commands, cli
from kb_evolve.export.bundle import export_bundle
from kb_evolve.search import Search
from problems.catalogue import load
from problems.problem import Problem

add_commands()

NAME = "row_variance"


def problem(ref: str = NAME) -> Problem:
    """A bundled problem with its first kernel; who judges it by a scripted landscape runs none of its code."""
    return load(ref)


def kb(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def searched(db: Path, landscape: Landscape | None = None, ref: str = NAME, **options: Any) -> Run:
    """A run on the scripted landscape."""
    options = {"run": "night", "evaluations": 14, **options}
    return Search(problem(ref), db=str(db), workbench=Replay(landscape or Landscape()), **options).run().run


def bundle_of(db: Path, out: Path, run: str = "night") -> Path:
    with open_store(db, read_only=True) as store:
        found = store.find_run(run)
        assert found is not None
        export_bundle(store, found, out)
    return out


def reseal(folder: Path) -> None:
    """Checksums that fit again, as a forger writes them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = (
        f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(folder).as_posix()}" for file in files
    )
    (folder / "SHA256SUMS").write_text("".join(f"{line}\n" for line in lines))


def edit(path: Path, *keys: str | int, value: Any) -> None:
    """Sets one value of a JSON file."""
    document = json.loads(path.read_text())
    place = document
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(document))

"""Files that appear in a folder together: whoever looks in between finds none of them, or no last one."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from islands.backup import sync
from islands.database import MAGIC
from kb_evolve.config import ConfigError

PREFIX = ".partial-"
"""Of the folder in which files wait for each other; one that stays behind is of a killed process and may go."""


class WriteError(ConfigError):
    """A place that cannot be written to; says which and why."""


@contextlib.contextmanager
def staged(folder: Path, *, last: str = "", stale: Sequence[str] = ()) -> Iterator[Path]:
    """An empty folder inside `folder`, which is created; what the body wrote moves up when the body ends well.

    Files of the same names are replaced, and those named in `stale` go. `last` goes first and comes last: while it is
    there, all are there. When the body fails or is interrupted, nothing was written, and folders made for it go again.
    Raises WriteError where the file system refuses.
    """
    made: list[Path] = []
    stage: Path | None = None
    try:
        made = _make(folder)
        stage = Path(tempfile.mkdtemp(prefix=PREFIX, dir=folder))
        yield stage
        _move(stage, folder, last, stale)
        made = []
    except OSError as error:
        place = error.filename2 or error.filename or folder
        raise WriteError(
            f"{folder} cannot be written to: {error.strerror or error} ({place}). Nothing whole was written; "
            "name another place with --out"
        ) from error
    finally:
        if stage is not None:
            shutil.rmtree(stage, ignore_errors=True)
        for one in reversed(made):
            with contextlib.suppress(OSError):
                one.rmdir()


def write_whole(folder: Path, contents: Mapping[str, str], *, last: str, stale: Sequence[str] = ()) -> list[Path]:
    """Writes the files (texts by path) into `folder` as `staged` does; their paths, in the order given."""
    with staged(folder, last=last, stale=stale) as stage:
        for name, text in contents.items():
            path = stage / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
    return [folder / name for name in contents]


def write_file(path: Path, text: str) -> None:
    """Writes a text whole, or not at all; what is no regular file (a pipe, a terminal) is written straight.

    WriteError for a folder, for a database (a summary is not worth one), and where the file system refuses.
    """
    path = path.resolve()
    _refuse_place(path)
    if path.exists() and not path.is_file():
        path.write_bytes(text.encode())
    else:
        write_whole(path.parent, {path.name: text}, last=path.name)


def check_file(path: Path) -> None:
    """WriteError, before any work is done for it, where the file could not be written; its folder must be there."""
    path = path.resolve()
    _refuse_place(path)
    if path.exists() and not path.is_file():
        return
    if not path.parent.is_dir():
        raise WriteError(f"{path} cannot be written to: there is no folder {path.parent}; create it, or change --out")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise WriteError(f"{path} cannot be written to: no permission in {path.parent}; name another file with --out")


def _refuse_place(path: Path) -> None:
    if path.is_dir():
        raise WriteError(f"{path} is a folder, expected the name of a file: name one in it with --out")
    try:
        if is_database(path):
            raise WriteError(f"{path} is a database, which is not written over: name another file with --out")
    except OSError as error:
        raise WriteError(f"{path} cannot be written to: {error.strerror}; name another file with --out") from error


def is_database(path: Path) -> bool:
    """Whether a regular file begins as a SQLite database does; an empty one may become one, and is none yet."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _make(folder: Path) -> list[Path]:
    """Creates the folder; those that were not there, the outermost first."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _move(stage: Path, folder: Path, last: str, stale: Sequence[str]) -> None:
    names = sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
    for name in names:
        sync(stage / name)
    is_gap = bool(last) and (len(names) > 1 or bool(stale))
    for name in [*([last] if is_gap else []), *stale]:
        (folder / name).unlink(missing_ok=True)
    for name in sorted(names, key=lambda name: name == last):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(stage / name, folder / name)

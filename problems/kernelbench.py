"""KernelBench's problems: from a checkout's folders or from its Hugging Face data set's parquet files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from problems.problem import ProblemError

REFERENCE = re.compile(r"level(?P<level>\d+)/(?P<number>\d+)(?P<rest>_\w+)?")
"""`level1/19` or `level1/19_ReLU`."""
COLUMNS = ("code", "level", "name", "problem_id")
"""Columns of the data set ScalingIntelligence/KernelBench; its names lack the `.py` of the files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One problem of KernelBench: a file not yet read, or the text of a parquet row."""

    level: int
    number: int
    name: str
    """`19_ReLU`, without `.py`."""
    where: str
    """For messages: the file's path, or the parquet file's."""
    path: Path | None = None
    code: str | None = None

    @property
    def id(self) -> str:
        return f"level{self.level}/{self.number}"


def find(ref: str, root: str | Path) -> Entry:
    """The entry that `level1/19` or `level1/19_ReLU` names in `root`.

    `root` is a checkout (holding KernelBench/level1 or level1), a parquet file or a folder with parquet
    files (in it or in its data/). Raises ProblemError where nothing, or more than one, is found.
    """
    match = REFERENCE.fullmatch(ref)
    if match is None:
        raise ProblemError(f"expected a KernelBench reference such as level1/19 or level1/19_ReLU, found {ref!r}")
    level, number = int(match["level"]), int(match["number"])
    entries = list(_entries(Path(root).expanduser(), level))
    named = [entry for entry in entries if entry.number == number]
    if match["rest"]:
        wanted = f"{number}{match['rest']}"
        named = [entry for entry in named if entry.name == wanted] or _refuse_name(ref, wanted, named)
    if len(named) == 1:
        return named[0]
    if named:
        names = ", ".join(f"{entry.name} ({entry.where})" for entry in named)
        raise ProblemError(f"{ref} names {len(named)} problems in {root}: {names}; say the full name")
    numbers = sorted({entry.number for entry in entries})
    raise ProblemError(
        f"no problem {number} in level {level} of {root}: it has {len(numbers)} problems, "
        f"numbers {numbers[0]} to {numbers[-1]}"
    )


def numbers(root: str | Path, level: int) -> set[int]:
    """The numbers of all problems of a level in `root`, as for `find`; ProblemError where there are none."""
    return {entry.number for entry in _entries(Path(root).expanduser(), level)}


def _refuse_name(ref: str, wanted: str, named: list[Entry]) -> list[Entry]:
    if not named:
        return []
    names = " and ".join(entry.name for entry in named)
    raise ProblemError(f"{ref}: no problem is named {wanted}; the one with this number is {names}")


def _entries(root: Path, level: int) -> Iterator[Entry]:
    """All problems of one level in a root; at least one, else ProblemError."""
    if root.is_file():
        entries = list(_rows(root, level))
    elif root.is_dir():
        entries = _files(root, level)
        for file in _parquet_files(root) if not entries else ():
            entries += _rows(file, level)
    else:
        raise ProblemError(f"no KernelBench at {root}: expected a checkout, a parquet file or a folder of them")
    if not entries:
        raise ProblemError(
            f"no problems of level {level} in {root}: expected KernelBench/level{level}/19_ReLU.py or "
            f"level{level}/19_ReLU.py below it, or parquet files with the columns {', '.join(COLUMNS)}"
        )
    yield from entries


def _files(root: Path, level: int) -> list[Entry]:
    for folder in (root / "KernelBench" / f"level{level}", root / f"level{level}"):
        matches = ((re.match(r"(\d+)_", path.name), path) for path in sorted(folder.glob("*.py")))
        entries = [Entry(level, int(m[1]), path.stem, str(path), path=path) for m, path in matches if m]
        if entries:
            return entries
    return []


def _parquet_files(root: Path) -> list[Path]:
    return sorted(root.glob("*.parquet")) or sorted((root / "data").glob("*.parquet"))


def _rows(file: Path, level: int) -> Iterator[Entry]:
    for row in _read_parquet(file):
        if _number(row["level"], file) == level:
            name = str(row["name"]).removesuffix(".py")
            yield Entry(level, _number(row["problem_id"], file), name, str(file), code=str(row["code"]))


def _read_parquet(file: Path) -> list[dict[str, Any]]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ProblemError(f"reading {file} needs pyarrow, which is not installed: pip install pyarrow") from error
    try:
        found = pyarrow.parquet.read_schema(file).names
        missing = [column for column in COLUMNS if column not in found]
        if missing:
            raise ProblemError(
                f"{file} is not KernelBench's data set: expected the columns {', '.join(COLUMNS)}, "
                f"found {', '.join(found)}"
            )
        return pyarrow.parquet.read_table(file, columns=list(COLUMNS)).to_pylist()
    except (pyarrow.ArrowException, OSError) as error:
        raise ProblemError(f"{file} is not a readable parquet file: {error}; download it again") from error


def _number(value: Any, file: Path) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{file}: expected whole numbers in level and problem_id, found {value!r}") from error

"""A folder of files under checksums: written whole, and read as what a stranger may have made of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kb_evolve.config import ConfigError
from kb_evolve.export.whole import write_whole
from kb_evolve.report.text import one_line

SUMS = "SHA256SUMS"
"""The list that `sha256sum -c` reads: digest, two blanks, path."""
FILE_LIMIT = 32 << 20
"""Largest file that is read [B]."""
TOTAL_LIMIT = 256 << 20
"""Most that is read of a folder [B]."""
FILES_LIMIT = 5_000

LINE = re.compile(r"([0-9a-f]{64})  (\S.*)")
PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,120}")
DEPTH = 3
"""Names that a path may have: those of folders, then the file's."""


class BundleError(ConfigError):
    """A bundle that cannot be used; says which file, what was expected and what was found; nothing in it is hidden."""

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text, 1_000))


def seal(folder: Path, contents: Mapping[str, str]) -> list[Path]:
    """Writes the files (texts by path) and their checksums into a new or empty folder; the paths, checksums last.

    The checksums appear when all others are there: a folder without them is no bundle.

    BundleError where the folder holds something already, or the files are more than `unseal` reads.
    """
    _check_sizes({name: len(text.encode()) for name, text in contents.items()})
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BundleError(f"{folder} is there and is not an empty folder: a bundle needs one of its own, name another")
    sums = "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in contents.items())
    return write_whole(folder, {**contents, SUMS: sums}, last=SUMS)


def _check_sizes(sizes: Mapping[str, int]) -> None:
    largest = max(sizes, key=lambda name: sizes[name])
    if len(sizes) > FILES_LIMIT or sizes[largest] > FILE_LIMIT or sum(sizes.values()) > TOTAL_LIMIT:
        raise BundleError(
            f"a bundle may have {FILES_LIMIT} files of {FILE_LIMIT} bytes, {TOTAL_LIMIT} in all; this one would have "
            f"{len(sizes)} files with {sum(sizes.values())} bytes, the largest is {largest} with {sizes[largest]}"
        )


def unseal(folder: Path) -> dict[str, bytes]:
    """The checksums and every file that they name, by path, each read once and found to fit its checksum.

    Links are not followed, in no part of a path; other files of the folder are not looked at. BundleError for whatever
    does not fit: a missing, changed, too large or irregular file, a path that leads out of the folder.
    """
    if not folder.is_dir():
        what = "is a file: unpack it first" if folder.exists() else "is not there"
        raise BundleError(f"{folder} {what}; a bundle is a folder, as `kb-evolve export RUN --format bundle` writes it")
    home = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        listed = _read(home, folder, SUMS, FILE_LIMIT)
        found, left = {SUMS: listed}, TOTAL_LIMIT
        for name, expected in _sums(listed, folder).items():
            found[name] = _read(home, folder, name, min(left, FILE_LIMIT))
            left -= len(found[name])
            _check(folder / name, found[name], expected)
        return found
    finally:
        os.close(home)


def is_sealed(folder: Path, *names: str) -> bool:
    """Whether a folder has checksums and files of these names; nothing is read."""
    return folder.is_dir() and all((folder / name).is_file() for name in (SUMS, *names))


def beside(folder: Path, names: Collection[str]) -> list[str]:
    """Paths in the folder that are not among `names`, in order; only the first FILES_LIMIT files are looked at."""
    found: list[str] = []
    for seen, path in enumerate(_entries(folder)):
        if seen >= FILES_LIMIT:
            break
        if (name := path.relative_to(folder).as_posix()) not in names:
            found.append(name)
    return sorted(found)


def _entries(folder: Path) -> Iterator[Path]:
    """All that is no folder, at DEPTH names at most; links are entries of their own."""
    waiting = [(folder, DEPTH)]
    while waiting:
        current, left = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(current) as entries:
            for entry in entries:
                if left > 1 and entry.is_dir(follow_symlinks=False):
                    waiting.append((Path(entry.path), left - 1))
                else:
                    yield Path(entry.path)


def text_of(contents: Mapping[str, bytes], name: str, folder: Path) -> str:
    """A file's text; BundleError when the checksums do not name it, or it is not UTF-8."""
    if name not in contents:
        raise BundleError(f"{folder}: {SUMS} names no {name}, which every bundle has; get the bundle again")
    try:
        return contents[name].decode("utf-8")
    except UnicodeDecodeError as error:
        raise BundleError(f"{folder / name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def json_of(contents: Mapping[str, bytes], name: str, folder: Path) -> Any:
    """What a JSON file holds; BundleError for one that is malformed or nested without end."""
    try:
        return json.loads(text_of(contents, name, folder))
    except RecursionError as error:
        raise BundleError(f"{folder / name} is nested too deeply to be read") from error
    except ValueError as error:
        raise BundleError(f"{folder / name} is not JSON: {error}") from error


def _sums(content: bytes, folder: Path) -> dict[str, str]:
    """Digests by path, every path one that stays inside the folder."""
    where = folder / SUMS
    try:
        lines = content.decode("ascii").splitlines()
    except UnicodeDecodeError as error:
        raise BundleError(f"{where} is not ASCII text at byte {error.start}; get the bundle again") from error
    if len(lines) > FILES_LIMIT:
        raise BundleError(f"{where} names {len(lines)} files, at most {FILES_LIMIT} are read")
    sums: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        match = LINE.fullmatch(line)
        if match is None:
            raise BundleError(f"{where}: line {number} must be a sha256, two blanks and a path, found {line[:100]!r}")
        parts = match[2].split("/")
        if len(parts) > DEPTH or not all(PART.fullmatch(part) for part in parts):
            raise BundleError(f"{where}: line {number} names {match[2][:200]!r}, which is no plain path in the bundle")
        if match[2] in sums or match[2] == SUMS:
            raise BundleError(f"{where}: line {number} names {match[2]} again")
        sums[match[2]] = match[1]
    return sums


def _read(home: int, folder: Path, name: str, limit: int) -> bytes:
    """A regular file's bytes, found below the open folder without following any link."""
    *folders, last = name.split("/")
    opened = [home]
    try:
        for part in folders:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            opened.append(os.open(part, flags, dir_fd=opened[-1]))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        opened.append(os.open(last, flags, dir_fd=opened[-1]))
        return _content(opened[-1], folder / name, limit)
    except FileNotFoundError as error:
        hint = "no bundle" if name == SUMS else f"named in {SUMS}"
        raise BundleError(f"{folder / name} is missing ({hint}); get the bundle again") from error
    except OSError as error:
        reason = "a link, which is not followed" if _is_link(opened[-1], name) else f"unreadable: {error.strerror}"
        raise BundleError(f"{folder / name} is {reason}; a bundle has plain files and folders only") from error
    finally:
        for descriptor in opened[1:]:
            os.close(descriptor)


def _content(descriptor: int, path: Path, limit: int) -> bytes:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise BundleError(f"{path} is no regular file; a bundle has plain files and folders only")
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise BundleError(f"{path} is too large: a file may have {FILE_LIMIT} bytes, all together {TOTAL_LIMIT}")
    return content


def _is_link(parent: int, name: str) -> bool:
    """Whether the part of the path at which opening ended is a link: the parent is the last folder that was opened."""
    for part in name.split("/"):
        try:
            if stat.S_ISLNK(os.stat(part, dir_fd=parent, follow_symlinks=False).st_mode):
                return True
        except OSError:
            continue
    return False


def _check(path: Path, content: bytes, expected: str) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != expected:
        raise BundleError(
            f"{path} does not fit its checksum: {SUMS} says {expected}, the file has {found}. It was changed or "
            "damaged after the export; get the bundle again"
        )

"""What a build compiled, as one hash: equal for builds whose code is the same, whatever their sources were.

Read from the files of a kept build; nothing is loaded or executed. Of a library counts what the loader maps into
memory, of a GPU binary its sections without those for debuggers: so paths, times, line numbers and the names of local
variables do not. Says nothing of the Python around it: that is the part of islands/novelty.py's `host`.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE_BYTES = 64 << 20
"""Libraries larger than this are not hashed."""

EM_CUDA = 190
PT_LOAD, PT_NOTE = 1, 4
SHT_NOTE, SHT_NOBITS = 7, 8

_HEADER = struct.Struct("<4sBBB9xHHIQQQIHHHHHH")  # 64-bit little-endian ELF: elf(5), Elf64_Ehdr
_SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_SECTION = struct.Struct("<IIQQQQIIQQ")  # Elf64_Shdr
_SECTIONS_PLACE = ((40, 48), (58, 64))  # e_shoff; e_shentsize, e_shnum, e_shstrndx: they move with local names

FOR_DEBUGGERS = (".debug", ".nv_debug", ".rela.debug", ".rela.nv_debug", ".rel.debug", ".rel.nv_debug")


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    offset: int
    size: int
    rest: tuple[int, ...]
    """Address, link, info, alignment, size of an entry."""


def binary_sha256(folder: str) -> str:
    """Hex digest over the code that the build in `folder` (Artifact.folder) compiled ahead.

    Empty for a failed build (which has no folder), where nothing was compiled, where a part is left to the first call
    on the device, where two extensions or two kernels have one name (which of them runs where cannot be told from
    here), and where a file is no ELF.
    """
    if not folder:
        return ""
    products = Path(folder) / "products"
    try:
        found = {**_extensions(products), **_kernels(products / "triton")}
    except (ValueError, OSError, struct.error, KeyError, RecursionError):
        return ""
    return hashlib.sha256(json.dumps(sorted(found.items())).encode()).hexdigest() if found else ""


def code_sha256(elf: bytes) -> str:
    """Hex digest of what a 64-bit ELF file does. ValueError or struct.error where it is none."""
    magic, bits, order, _, kind, machine, *_ = _HEADER.unpack_from(elf)
    if (magic, bits, order) != (b"\x7fELF", 2, 1):
        raise ValueError(f"expected a 64-bit little-endian ELF file, found one that begins with {elf[:6]!r}")
    digest = hashlib.sha256(f"{kind} {machine}".encode())
    for part in _gpu_code(elf) if machine == EM_CUDA else _mapped(elf):
        digest.update(part)
    return digest.hexdigest()


def _mapped(elf: bytes) -> Iterator[bytes]:
    """What the loader maps, and how: the segments, with the build's id and the place of the section table blanked."""
    content = bytearray(elf)
    start, size, count = _HEADER.unpack_from(elf)[8], *_HEADER.unpack_from(elf)[12:14]
    segments = [_SEGMENT.unpack_from(elf, start + index * size) for index in range(count)]
    blank = [*_SECTIONS_PLACE]
    blank += [(offset, offset + length) for kind, _, offset, _, _, length, _, _ in segments if kind == PT_NOTE]
    for begin, end in blank:
        end = min(end, len(content))
        content[begin:end] = bytes(max(0, end - begin))
    for segment in segments:
        yield _SEGMENT.pack(*segment)
        kind, _, offset, _, _, length, _, _ = segment
        if kind == PT_LOAD:
            if offset + length > len(content):
                raise ValueError("a segment reaches beyond the file's end")
            yield bytes(content[offset : offset + length])


def _gpu_code(elf: bytes) -> Iterator[bytes]:
    """Every section but notes and what is for debuggers; the table of section names is left out for that reason."""
    for one in _sections(elf):
        if one.kind != SHT_NOTE and not one.name.startswith(FOR_DEBUGGERS) and one.name != ".shstrtab":
            yield repr((one.name, one.kind, one.flags, one.size, one.rest)).encode()
            if one.kind != SHT_NOBITS:
                yield elf[one.offset : one.offset + one.size]


def _sections(elf: bytes) -> list[_Section]:
    """The section table; empty where the file has none."""
    start, (size, count, names) = _HEADER.unpack_from(elf)[9], _HEADER.unpack_from(elf)[14:17]
    if not start or not count or names >= count:
        return []
    entries = [_SECTION.unpack_from(elf, start + index * size) for index in range(count)]
    texts = elf[entries[names][4] : entries[names][4] + entries[names][5]]
    found = []
    for name, kind, flags, address, offset, length, link, info, alignment, entry in entries:
        text = texts[name : texts.find(b"\0", name)].decode(errors="replace")
        found.append(_Section(text, kind, flags, offset, length, (address, link, info, alignment, entry)))
    return found


def _extensions(products: Path) -> dict[str, str]:
    """Each extension's library by its file's name; ValueError where two have the same."""
    found: dict[str, str] = {}
    for report in sorted(products.glob("*/build.json")):
        if report.parent.name == "triton":
            continue
        name = str(_object(report)["name"])
        if "/" in name:
            raise ValueError(f"an extension's name must be no path, found {name!r}")
        library = report.parent / f"{name}.so"
        rebuilt = report.parent / f"{name}.rebuilt.so"
        if name in found:
            raise ValueError(f"two extensions are named {name}")
        found[name] = code_sha256(_content(rebuilt if rebuilt.exists() else library))
    return found


def _kernels(folder: Path) -> dict[str, str]:
    """Each of Triton's kernels, and each library that launches one; ValueError where not all is compiled ahead."""
    if not (folder / "build.json").exists():
        return {}
    if _object(folder / "build.json")["route"] != "triton":
        raise ValueError("kernels are left to be compiled on the device")
    found: dict[str, str] = {}
    for cubin in sorted((folder / "cache").glob("*/*.cubin")):
        said = _object(cubin.with_suffix(".json"))
        name = f"triton {said['name']}"
        if name in found:
            raise ValueError(f"several binaries are of the kernel {said['name']}")
        launch = json.dumps({key: value for key, value in sorted(said.items()) if key != "hash"})
        found[name] = hashlib.sha256(f"{code_sha256(_content(cubin))} {launch}".encode()).hexdigest()
    return found


def _object(path: Path) -> dict[str, Any]:
    said = json.loads(_content(path))
    if not isinstance(said, dict):
        raise ValueError(f"expected an object in {path.name}")
    return said


def _content(path: Path) -> bytes:
    if path.is_symlink() or not path.is_file() or path.stat().st_size > FILE_BYTES:
        raise ValueError(f"{path.name} is not a plain file of at most {FILE_BYTES >> 20} MiB")
    return path.read_bytes()

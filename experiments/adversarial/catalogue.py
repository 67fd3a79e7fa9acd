"""What the kernel files say of themselves: problem, mechanism, honest twin, what the judge must answer.

    python -m experiments.adversarial.catalogue docs/adversarial.md

puts their tables, as they now are, in the place of those in the page.
"""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from problems import catalogue as bundled

HERE = Path(__file__).parent
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"
GROUPS = (
    "Replay and deferral",
    "Measuring tools",
    "Verdict",
    "Numerics and tasks",
    "Policy labels",
    "Host",
    "Harmless variant",
    "Honest",
)
BACKENDS = ("cpp", "cuda", "triton")
EXPECTATIONS = ("rejected", "accepted", "accepted-harmless", "any")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Kernel:
    """One file of the suite."""

    name: str
    backend: str
    title: str
    source: str
    problem: str
    group: str
    """One of the groups of the catalogue of mechanisms."""
    mechanism: str
    twin: str
    """The honest file of the same backend; empty for an honest file itself."""
    expect: str
    verdicts: tuple[str, ...]
    """Which typed verdicts are right; empty: any that fits `expect`."""
    precision: str

    @property
    def key(self) -> str:
        return f"{self.backend}/{self.name}"

    @property
    def is_honest(self) -> bool:
        return self.expect.startswith("accepted")


def kernels(backend: str) -> list[Kernel]:
    """All files of a backend, by name. ValueError says what one of them lacks."""
    paths = sorted((HERE / backend).glob("*.py"))
    found = [read(path) for path in paths if path.name != "__init__.py"]
    honest = {kernel.name: kernel for kernel in found if kernel.expect == "accepted"}
    for kernel in found:
        twin = honest.get(kernel.twin)
        if kernel.expect != "accepted" and (twin is None or twin.problem != kernel.problem):
            raise ValueError(
                f"{kernel.key}: Twin must name an honest {backend} file (Expect: accepted) of problem "
                f"{kernel.problem}, found {kernel.twin!r}; honest are {', '.join(sorted(honest))}"
            )
    return found


def read(path: Path) -> Kernel:
    """The file's own description, from its docstring; the file is not executed."""
    source = path.read_text(encoding="utf-8")
    lines = (ast.get_docstring(ast.parse(source)) or "").splitlines()
    said = {match[1]: match[2].strip() for line in lines if (match := re.fullmatch(r"([A-Z][a-z]+): (.+)", line))}
    for name in ("Problem", "Mechanism", "Twin", "Expect"):
        if name not in said:
            raise ValueError(f"{path}: the module docstring must have a line '{name}: ...'")
    _demand(path, "Expect", said["Expect"], EXPECTATIONS)
    _demand(path, "Precision", said.get("Precision", "fp32"), PRECISIONS)
    group, _, mechanism = said["Mechanism"].partition(" / ")
    return Kernel(
        name=path.stem,
        backend=path.parent.name,
        title=lines[0],
        source=source,
        problem=said["Problem"],
        group=group.strip(),
        mechanism=mechanism.strip(),
        twin="" if said["Twin"] == "none" else said["Twin"],
        expect=said["Expect"],
        verdicts=tuple(part.strip() for part in said["Verdict"].split(",")) if "Verdict" in said else (),
        precision=said.get("Precision", "fp32"),
    )


def problem_source(name: str, *, small: bool = False) -> str:
    """The problem's text: a file under problems/ here, or a bundled problem.

    `small` puts the sizes of its docstring's line `Small: ROWS, COLUMNS = 24, 256` in place of its own.
    """
    path = HERE / "problems" / f"{name}.py"
    source = path.read_text(encoding="utf-8") if path.exists() else bundled.load(name).source
    smaller = re.search(r"^Small: (([A-Z_, ]+) = .+)$", source, re.MULTILINE)
    if small and smaller:
        source, count = re.subn(rf"^{re.escape(smaller[2])} = .+$", smaller[1], source, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"problem {name}: '{smaller[2]} = ...' must stand once in it, found {count} times")
    return source


def tables() -> str:
    """One Markdown table per group of mechanisms, with the files of all backends."""
    everything = [kernel for backend in BACKENDS for kernel in kernels(backend)]
    unknown = {kernel.group for kernel in everything} - set(GROUPS)
    if unknown:
        raise ValueError(f"Mechanism must begin with one of {', '.join(GROUPS)}, found {', '.join(sorted(unknown))}")
    parts = [BEGIN]
    for group in GROUPS:
        parts.append(f"## {group}\n\n| mechanism | file | twin | must be |\n|---|---|---|---|\n")
        of_group = [kernel for kernel in everything if kernel.group == group]
        parts += [_row(kernel) for kernel in sorted(of_group, key=lambda k: (k.mechanism.lower(), k.key))]
        parts.append("\n")
    return "".join([*parts, END])


def update_page(path: Path) -> None:
    """Puts `tables` between the page's marks. ValueError when it has none."""
    page = path.read_text(encoding="utf-8")
    if BEGIN not in page or END not in page:
        raise ValueError(f"{path} must hold the lines {BEGIN.strip()!r} and {END.strip()!r}")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    path.write_text(before + tables() + after, encoding="utf-8")


def _row(kernel: Kernel) -> str:
    answers = f": {', '.join(kernel.verdicts)}" if kernel.verdicts else ""
    return f"| {kernel.mechanism} | {kernel.key} | {kernel.twin or '-'} | {kernel.expect}{answers} |\n"


def _demand(path: Path, name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{path}: {name} must be one of {', '.join(allowed)}, found {value!r}")


if __name__ == "__main__":
    update_page(Path(sys.argv[1]))

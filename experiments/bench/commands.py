"""What commands that look at a database cost a user: time and highest memory, the interpreter's start included.

    python -m experiments.bench.commands --out experiments/bench/results/commands.json

A database of each size is filled as a search writes it (experiments/bench/dashboard.py), a tenth of its candidates with
a prompt and a reply; with `--keep` it is filled once and used again. Each command is a child process as a user starts
it; the MCP server's tools are called in one. Peak memory is the child's own, by wait4(2).
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from experiments.bench.dashboard import fill, make_run
from experiments.bench.records import about, add_row, set_fields
from islands.store import open_store

SIZES = (1_000, 100_000)
TIMES = 3
"""Calls of a command, of which the median counts; of one that writes a whole history there is one."""
RUN = "large"
ASKED_EVERY = 10
PROMPT = "Make this kernel faster.\n" + "    out[i] = in[i] * scale + bias[i];\n" * 220
"""8 KB, as a usual prompt."""
REPLY = "Vectors of eight.\n" + "    out[i] = fused(in[i], scale, bias[i]);\n" * 100


def fill_database(db: Path, size: int) -> None:
    """Writes `size` candidates under another name first, so that a half-filled file is never used."""
    unfinished = db.with_suffix(".part")
    unfinished.unlink(missing_ok=True)
    with open_store(unfinished) as store:
        run = make_run(store, RUN)
        for first in range(0, size, 500):
            last = min(first + 500, size)
            with store.transaction():
                fill(store, run, first, last)
                for number in range(first, last, ASKED_EVERY):
                    _converse(store, run.id, number)
        store.add_event(run.id, "stopped", {"stop": "budget", "reason": "all candidates were told"})
    unfinished.rename(db)


def _converse(store: Any, run_id: str, number: int) -> None:
    request = {
        "number": number, "turn": 0, "operator": "diff", "model": "bench", "island": number % 4, "parent_ids": (),
        "messages": ({"role": "user", "content": f"{PROMPT}{number}"},), "prompt_version": "1", "parameters": {},
        "worst_usd": None,
    }  # fmt: skip
    store.open_request(run_id, request)
    usage = {"model": "bench", "prompt_tokens": 2_000, "completion_tokens": 1_000, "cost_usd": 0.001}
    store.add_reply(run_id, number, 0, {"text": REPLY, "reasoning": "", "finish_reason": "stop", "usage": usage})


def commands(db: Path, size: int, out: Path) -> dict[str, tuple[list[str], int]]:
    """Words and number of calls of each command, by its name."""
    with open_store(db, read_only=True) as store:
        run_id = store.runs()[0].id
    middle = f"{run_id}-{size // 2 // ASKED_EVERY * ASKED_EVERY:06d}"
    own = [sys.executable, "-m", "kb_evolve"]
    looks = {
        "help": ["--help"], "runs": ["runs"], "runs --json": ["runs", "--json"],
        "top": ["top"], "top --json": ["top", "--json"], "top --pareto": ["top", "--pareto"],
        "show RUN": ["show", RUN], "show ID": ["show", middle], "show ID --prompt": ["show", middle, "--prompt"],
        "show ID --json": ["show", middle, "--json"], "export markdown": ["export", RUN, "--format", "markdown"],
    }  # fmt: skip
    writes = {f"export {form}": ["export", RUN, "--format", form] for form in ("kernelbench", "bundle")}
    whole = {f"db export {form}": ["db", "export", "--format", form] for form in ("jsonl", "parquet")}
    tool = [sys.executable, "-m", "experiments.bench.commands", "--db", str(db), "--tool"]
    found = {
        name: ([*own, *words, *([] if name == "help" else ["--db", str(db)])], TIMES) for name, words in looks.items()
    }
    for name, words in (writes | whole).items():
        folder = str(out / name.replace(" ", "-"))
        found[name] = ([*own, *words, "--db", str(db), "--out", folder], 1)
    found["mcp top"] = ([*tool, "top"], TIMES)
    found["mcp show"] = ([*tool, "show"], TIMES)
    return found


def call(words: list[str]) -> tuple[float, float, float]:
    """Seconds, CPU seconds and highest resident memory (MB) of a child process. ClickException when it fails."""
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=said)
        _, status, usage = os.wait4(child.pid, 0)
        took_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            raise click.ClickException(f"{' '.join(words)} failed: {said.read()[-2_000:].decode()}")
    return took_s, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3


def measure(db: Path, size: int, only: tuple[str, ...]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each command with its figures, as they come."""
    with tempfile.TemporaryDirectory() as folder:
        for name, (words, times) in commands(db, size, Path(folder)).items():
            if only and name not in only:
                continue
            found = []
            for number in range(times):
                out = Path(folder) / str(number)
                found.append(call([word.replace(folder, str(out)) for word in words]))
            walls, cpus, peaks = zip(*found, strict=True)
            yield (
                name,
                {
                    "wall_s": round(statistics.median(walls), 3),
                    "cpu_s": round(statistics.median(cpus), 3),
                    "first_s": round(walls[0], 3),
                    "peak_mb": round(max(peaks), 1),
                },
            )


def call_tool(db: str, tool: str) -> None:
    """What a client's call does in the MCP server."""
    import anyio

    from kb_evolve.mcp_server import make_server

    arguments = {"id": RUN, "conversation": True} if tool == "show" else {}
    anyio.run(make_server(db).call_tool, tool, arguments)


@contextlib.contextmanager
def place(keep: Path | None) -> Iterator[Path]:
    """The folder of the databases."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="kb-evolve-commands-") as folder:
            yield Path(folder)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep


@click.command()
@click.option("--sizes", multiple=True, type=int, default=SIZES, show_default=True)
@click.option("--only", multiple=True, help="Measure this command alone, such as 'top --pareto'.")
@click.option("--keep", type=click.Path(path_type=Path), help="Folder whose databases are used again.")
@click.option("--note", default="", help="What else the machine did.")
@click.option("--out", type=click.Path(path_type=Path))
@click.option("--db", hidden=True)
@click.option("--tool", hidden=True)
@click.option("--fill", "size_to_fill", type=int, hidden=True)
def main(
    sizes: tuple[int, ...], only: tuple[str, ...], keep: Path | None, note: str, out: Path | None, db: str | None,
    tool: str | None, size_to_fill: int | None,
) -> None:  # fmt: skip
    """Writes what every command costs at each size."""
    if db is not None and tool is not None:
        return call_tool(db, tool)
    if db is not None and size_to_fill is not None:
        return fill_database(Path(db), size_to_fill)
    if out is None:
        raise click.UsageError("name the file to write with --out")
    set_fields(out, about={**about("cpu"), "load_average": os.getloadavg()[1], "note": note})
    with place(keep) as folder:
        for size in sizes:
            path = folder / f"commands{size}.db"
            if not path.exists():  # in a child, whose memory is not this process's: a child begins with its parent's
                call([sys.executable, "-m", "experiments.bench.commands", "--db", str(path), "--fill", str(size)])
            for name, row in measure(path, size, only):
                add_row(out, f"commands_{size}", name, row)
                click.echo(f"{size:>8,}  {name:20}" + "".join(f"  {key} {value:8.3f}" for key, value in row.items()))
            set_fields(out, **{f"db_mb_{size}": round(path.stat().st_size / 1e6, 1)})
    return None


if __name__ == "__main__":
    main()

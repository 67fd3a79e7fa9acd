"""The record of runs as tables for other tools: JSON lines, or Parquet."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from islands.candidate import Evaluated
from islands.database import StoreError
from islands.run import Run
from islands.store import Store
from kb_evolve.config import ConfigError
from kb_evolve.export.shareable import finite
from kb_evolve.export.whole import staged

Row = dict[str, Any]
BATCH = 1000
"""Rows of one Parquet row group: sources and prompts are some kilobytes each."""

RUN = "id name problem_id problem_sha256 problem_source backend device precision config:json seed:int budget:json"
CANDIDATE = "run id number:int island:int generation:int backend source parent_ids:texts mutator rationale details:json"
EVALUATION = """
    verdict reason problem source_sha256 baseline kernel_ms:float kernel_ms_ci:floats reference_ms:float speedup:float
    speedup_ci:floats max_abs_err:float error_ratio:float peak_mem_bytes:int compile_s:float evaluate_s:float
    features:json labels:texts log device_name sandbox tier rounds:int draws:int overhead_ms:float
    kernelbench_correct:bool judge_sha256 protocol
"""
ATTEMPT = """
    run number:int island:int mutator parent_ids:texts opened_at outcome reason rationale usage:json
    details:json closed_at
"""
TURN = """
    run number:int turn:int operator model island:int parent_ids:texts messages:json prompt_version parameters:json
    opened_at worst_usd:float text reasoning finish_reason usage:json replied_at
"""


def _columns(words: str) -> dict[str, str]:
    """Kinds by column name; a name without one is text."""
    return {name: kind or "text" for name, _, kind in (word.partition(":") for word in words.split())}


COLUMNS = {
    "runs": _columns(f"{RUN} git_commit started_at"),
    "candidates": _columns(f"{CANDIDATE} {EVALUATION}"),
    "attempts": _columns(ATTEMPT),
    "turns": _columns(TURN),
    "events": _columns("run kind fields:json at"),
}
"""Columns by table. `run` is the run's id; times are UTC, ISO 8601."""


def export_tables(store: Store, names: tuple[str, ...], form: str, out: Path) -> dict[Path, int]:
    """Writes each table of the runs named, or of all, into the folder `out`; rows by file.

    `candidates` holds those that were told their evaluation, in the order told. A number that JSON cannot write (nan,
    inf) becomes null in JSON. The files replace older ones when all are written. ConfigError when `form` is parquet
    and pyarrow is not installed; StoreError for a run that is not there; WriteError where `out` cannot be written.
    """
    write = _parquet_writer() if form == "parquet" else _write_json_lines
    runs = [_found(store, name) for name in names] if names else store.runs()
    written = {}
    with staged(out) as stage:
        for table, columns in COLUMNS.items():
            name = f"{table}.{form}"
            written[out / name] = write(stage / name, columns, _rows(store, runs, table))
    return written


def _found(store: Store, name: str) -> Run:
    run = store.find_run(name)
    if run is None:
        names = ", ".join(entry.name for entry in store.runs()) or "none yet"
        raise StoreError(f"{store.path} holds no run {name!r}; its runs: {names}")
    return run


def _rows(store: Store, runs: Iterable[Run], table: str) -> Iterator[Row]:
    for run in runs:
        if table == "runs":
            yield _fields(run)
        elif table == "candidates":
            yield from (_candidate_row(run, entry) for entry in store.stream(run.id))
        else:
            of_run: dict[str, Callable[[str], Iterable[Any]]] = {
                "attempts": store.stream_attempts,
                "turns": store.stream_turns,
                "events": store.stream_events,
            }
            yield from ({"run": run.id} | _fields(entry) for entry in of_run[table](run.id))


def _candidate_row(run: Run, entry: Evaluated) -> Row:
    verdict = {"verdict": entry.evaluation.verdict.value}
    return {"run": run.id} | _fields(entry.evaluation) | verdict | _fields(entry.candidate)


def _fields(value: Any) -> Row:
    """The fields of a dataclass as they are: `dataclasses.asdict` would copy all that is in them."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _write_json_lines(path: Path, columns: dict[str, str], rows: Iterable[Row]) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(finite({name: row[name] for name in columns}), allow_nan=False) + "\n")
            count += 1
    return count


def _parquet_writer() -> Callable[[Path, dict[str, str], Iterable[Row]], int]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise ConfigError(
            f"--format parquet needs pyarrow, which cannot be imported ({error}). Install it with "
            f"`pip install pyarrow`, or use --format jsonl."
        ) from error
    types = {
        "text": pyarrow.string(),
        "json": pyarrow.string(),
        "int": pyarrow.int64(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "texts": pyarrow.list_(pyarrow.string()),
        "floats": pyarrow.list_(pyarrow.float64()),
    }

    def write(path: Path, columns: dict[str, str], rows: Iterable[Row]) -> int:
        schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
        remaining, count = iter(rows), 0
        with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
            while batch := [_flat(row, columns) for row in islice(remaining, BATCH)]:
                writer.write_table(pyarrow.Table.from_pylist(batch, schema=schema))
                count += len(batch)
        return count

    return write


def _flat(row: Row, columns: dict[str, str]) -> Row:
    """The row with its JSON values as text: their shapes differ from row to row."""
    return {name: json.dumps(finite(row[name])) if kind == "json" else row[name] for name, kind in columns.items()}

"""Recorded tuning spaces of other people as landscapes: Kernel Tuner's cache files, and the T4 form of results.

A cache file holds `tune_params` (name -> values) and `cache` (key -> the values with `time`, a number, or the name of
an error). A T4 file holds `results`, each with `configuration`, `invalidity` and `measurements`; the choices of a
tunable are then those that occur. Tunables with one value are left out: there is nothing to choose.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from experiments.landscapes.landscape import Landscape, LandscapeError, check, read_json

Row = tuple[dict[str, Any], float | None]
"""A configuration and its time; None where it failed."""


def read(path: Path) -> Landscape:
    """The landscape in one file, named after its folder and itself. LandscapeError where it is of neither form."""
    document, name = read_json(path), f"{path.parent.name}/{path.name.split('.')[0]}"
    if isinstance(document.get("cache"), dict) and isinstance(document.get("tune_params"), dict):
        rows = [_cached(one) for one in document["cache"].values()]
        choices = {key: _words(values) for key, values in document["tune_params"].items()}
        device = str(document.get("device_name") or "")
    elif isinstance(document.get("results"), list):
        rows = [_result(one, path) for one in document["results"]]
        choices = _occurring(rows)
        device = ""
    else:
        raise LandscapeError(f"{path}: expected 'cache' and 'tune_params' (Kernel Tuner) or 'results' (T4)")
    open_choices = {key: values for key, values in choices.items() if len(values) > 1}
    times = {
        tuple(_word(values[key]) for key in open_choices): time
        for values, time in rows
        if time is not None and time > 0
    }
    failed = sum(time is None for _, time in rows)
    return check(Landscape(name, device or path.name.split(".")[0], open_choices, times, failed))


def _cached(entry: dict[str, Any]) -> Row:
    time = entry.get("time")
    return entry, float(time) if isinstance(time, int | float) and not isinstance(time, bool) else None


def _result(entry: dict[str, Any], path: Path) -> Row:
    if entry.get("invalidity") != "correct":
        return entry["configuration"], None
    found = [one["value"] for one in entry["measurements"] if one["name"] == "time"]
    if not found:
        raise LandscapeError(f"{path}: expected a measurement 'time' of every correct configuration, one has none")
    return entry["configuration"], float(found[0])


def _occurring(rows: Iterable[Row]) -> dict[str, tuple[str, ...]]:
    seen: dict[str, set[Any]] = {}
    for values, _ in rows:
        for key, value in values.items():
            seen.setdefault(key, set()).add(value)
    return {key: _words(sorted(values, key=lambda one: (isinstance(one, str), one))) for key, values in seen.items()}


def _words(values: Iterable[Any]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_word(value) for value in values))


def _word(value: Any) -> str:
    """As a source would write it: truth values as 1 and 0, 16.0 as 16."""
    if isinstance(value, bool | float) and value == int(value):
        value = int(value)
    return str(value)

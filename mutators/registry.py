"""Mutators by name; their modules are imported when one is made."""

from __future__ import annotations

import dataclasses
import difflib
import importlib
from typing import Any

from mutators.proposal import Mutator, ProposalError

TABLE = {
    "tune": ("mutators.tune", "Tune", "TuneOptions"),
    "transform": ("mutators.transform", "Transform", "TransformOptions"),
    "crossover": ("mutators.crossover", "Crossover", "CrossoverOptions"),
}
"""Name -> module, class, class of its options."""


def names() -> tuple[str, ...]:
    """Every mutator that can be made here."""
    return tuple(TABLE)


def create(name: str, options: dict[str, Any] | None = None) -> Mutator:
    """A mutator with its options; ProposalError for an unknown name or option, with the nearest known one."""
    if name not in TABLE:
        raise ProposalError(f"unknown mutator {name!r}: expected one of {', '.join(TABLE)}{_nearest(name, TABLE)}")
    module_name, class_name, options_name = TABLE[name]
    module = importlib.import_module(module_name)
    options_class = getattr(module, options_name)
    known = {field.name for field in dataclasses.fields(options_class)}
    for key in options or {}:
        if key not in known:
            expected = ", ".join(sorted(known))
            raise ProposalError(f"mutator {name} has no option {key!r}: expected {expected}{_nearest(key, known)}")
    mutator: Mutator = getattr(module, class_name)(options_class(**(options or {})))
    return mutator


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""

"""What may leave the house: of a run's configuration, and of numbers in JSON."""

from __future__ import annotations

import math
from typing import Any

from islands.run import Run

LOCAL = {
    "run": ("db", "start", "seeds", "kernelbench"),
    "models": ("api_base", "templates", "openevolve", "mailbox", "replay"),
}
"""Settings that name places of one machine and change no result; they stay at home."""


def shareable_config(run: Run) -> dict[str, Any]:
    """The resolved configuration without secrets, addresses and places."""
    kept = {name: value for name, value in run.config.items() if name != "prompt_secret"}
    for section, keys in LOCAL.items():
        if isinstance(kept.get(section), dict):
            kept[section] = {key: value for key, value in kept[section].items() if key not in keys}
    if isinstance(kept.get("models"), dict):
        kept["models"].pop("settings", None)
    return kept


def finite(value: Any) -> Any:
    """The JSON value with null for each number that JSON cannot write (nan, inf)."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(key): finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value

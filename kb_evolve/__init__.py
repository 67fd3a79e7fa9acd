"""Evolve GPU and CPU kernels that are verified and timed by a judge which trusts no candidate.

    import kb_evolve as kb

    outcome = kb.Search("rmsnorm", evaluations=60).run()
    print(outcome.best.evaluation.speedup)

Everything is imported when it is first used, so that `import kb_evolve` costs nothing.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from islands.store import open_store as open_database
    from kb_evolve.judging import evaluate
    from kb_evolve.search import Search
    from problems.catalogue import load as load_problem

__version__ = "0.1.0"

__all__ = ["Search", "__version__", "check_rooms", "evaluate", "load_problem", "open_database"]

ROOMS = ("problems", "fitness", "islands", "mutators")
"""Our other packages: top-level names that a user's own folder may take."""

EXPORTS = {
    "Search": ("kb_evolve.search", "Search"),
    "evaluate": ("kb_evolve.judging", "evaluate"),
    "load_problem": ("problems.catalogue", "load"),
    "open_database": ("islands.store", "open_store"),
}


def __getattr__(name: str) -> Any:
    if name not in EXPORTS:
        raise AttributeError(f"module 'kb_evolve' has no attribute {name!r}; it offers {', '.join(sorted(EXPORTS))}")
    check_rooms()
    module, attribute = EXPORTS[name]
    return getattr(importlib.import_module(module), attribute)


def check_rooms() -> None:
    """ImportError when another package of the same name hides one of ours; names the intruding path."""
    home = Path(__file__).resolve().parent.parent
    for room in ROOMS:
        spec = importlib.util.find_spec(room)
        if spec is None:
            raise ImportError(
                f"kb_evolve needs its own package {room!r} beside {home / 'kb_evolve'} and there is none: "
                f"install kb_evolve again"
            )
        places = list(spec.submodule_search_locations or [])
        if spec.origin is not None:
            places = [str(Path(spec.origin).parent if places else spec.origin)]
        if not any(Path(place).resolve() == home / room for place in places):
            raise ImportError(
                f"{places[0]} hides kb_evolve's own package {room!r} (expected {home / room}): start "
                f"kb_evolve from another folder, rename that one, or set PYTHONSAFEPATH=1"
            )

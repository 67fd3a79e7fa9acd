"""What a run's models answered, as a file that drives the same search again without them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from islands.turns import Turn
from kb_evolve.export.whole import staged
from kb_evolve.journal import reply_of
from mutators.replay import entry_of, write_replies

FILE = "replies.jsonl"


def export_replies(turns: Iterable[Turn], out: str | Path) -> Path:
    """Writes every reply into the folder `out`; the file's path. WriteError where that is not possible."""
    folder = Path(out)
    entries = [
        entry_of(number=turn.number, turn=turn.turn, operator=turn.operator, model=turn.model, reply=reply)
        for turn in turns
        if (reply := reply_of(turn)) is not None
    ]
    with staged(folder, last=FILE) as stage:
        write_replies(stage / FILE, entries)
    return folder / FILE

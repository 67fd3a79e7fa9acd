"""What a run's models answered, as a file that drives the same search again without them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from islands.turns import Turn
from kb_evolve.export.kernelbench import ExportError
from kb_evolve.export.whole import staged
from kb_evolve.journal import reply_of
from mutators.replay import entry_of, write_replies

FILE = "replies.jsonl"


def export_replies(turns: Iterable[Turn], out: str | Path) -> Path:
    """Writes every reply into the folder `out`; the file's path.

    ExportError where nothing was answered: nothing could be replayed. WriteError where the folder cannot be written.
    """
    folder = Path(out)
    entries = [
        entry_of(number=turn.number, turn=turn.turn, operator=turn.operator, model=turn.model, reply=reply)
        for turn in turns
        if (reply := reply_of(turn)) is not None
    ]
    if not entries:
        raise ExportError("the run's models answered nothing, so there is nothing to replay: it had no --model, say")
    with staged(folder, last=FILE) as stage:
        write_replies(stage / FILE, entries)
    return folder / FILE

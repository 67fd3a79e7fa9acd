"""Recorded replies in place of a model: the same search again, without a key and without a bill."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mutators.dialogue import Journal, ModelError, Reply, Request
from mutators.proposal import ProposalError, Usage

Key = tuple[int, int, str]
"""Ticket, turn and model of a reply."""


class Recorded:
    """Answers with the reply that was recorded for the same ticket, turn and model; costs nothing.

    Other times can lead the search to another parent or operator than the recorded one had: the reply is then read for
    those, and a program in it is as good as before, while edits may be refused.
    """

    def __init__(self, name: str, replies: Mapping[Key, Reply], journal: Journal) -> None:
        self.name, self._replies, self._journal = name, replies, journal
        self._last = max((number for number, *_ in replies), default=-1)

    def ask(self, request: Request) -> Reply:
        """The recorded reply. ModelError("bad_reply") where the record has none, "budget" where it has ended."""
        if (recorded := self._journal.reply(request.number, request.turn)) is not None:
            return recorded
        self._journal.open(request, 0.0)
        reply = self._replies.get((request.number, request.turn, request.model))
        if reply is None:
            error = self._why_none(request)
            self._journal.fail(request, error)
            raise error
        self._journal.close(request, reply)
        return reply

    def _why_none(self, request: Request) -> ModelError:
        if request.number > self._last:
            return ModelError("budget", f"the record ends with ticket {self._last}; ask a model for more")
        return ModelError(
            "bad_reply", f"the record has no reply of {request.model} to turn {request.turn} of ticket {request.number}"
        )


def write_replies(path: Path, turns: Iterable[Mapping[str, Any]]) -> int:
    """Writes one JSON line per reply (`number`, `turn`, `operator`, `model`, `reply`); how many."""
    lines = [json.dumps(turn, sort_keys=True) + "\n" for turn in turns]
    path.write_text("".join(lines), encoding="utf-8")
    return len(lines)


def read_replies(path: Path) -> dict[Key, Reply]:
    """The replies of a file that write_replies wrote, free of charge. ProposalError for any other file."""
    try:
        return dict(_entries(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ProposalError(f"the recorded replies {path} cannot be read: {error}; check the path") from error


def _entries(path: Path) -> Iterator[tuple[Key, Reply]]:
    for number, line in enumerate(path.read_text(encoding="utf-8").rstrip("\n").split("\n"), 1):
        try:
            entry = json.loads(line)
            reply = entry["reply"]
            usage = Usage(entry["model"], latency_s=0.0)
            text = (reply["text"], reply.get("reasoning", ""), reply.get("finish_reason", "stop"))
            if not all(isinstance(part, str) for part in (*text, entry["model"])):
                raise TypeError("a text is not a string")
            yield (int(entry["number"]), int(entry["turn"]), entry["model"]), Reply(*text, usage)
        except (ValueError, KeyError, TypeError) as error:
            raise ProposalError(
                f"{path}, line {number}: expected a JSON object with number, turn, model and reply.text, found "
                f"{line[:80]!r} ({type(error).__name__}: {error}); write it with "
                "`kb-evolve export RUN --format replies`"
            ) from error


def entry_of(*, number: int, turn: int, operator: str, model: str, reply: Reply) -> dict[str, Any]:
    """One line of a record."""
    return {"number": number, "turn": turn, "operator": operator, "model": model, "reply": asdict(reply)}

"""A person or a coding agent as the model: questions wait in the journal, and as files, until somebody answers."""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import asdict
from pathlib import Path

from mutators.dialogue import Journal, ModelError, Reply, Request
from mutators.proposal import Usage

log = logging.getLogger(__name__)

NAME = "mailbox"
POLL_S = 0.5
LONGEST_REPLY_BYTES = 4 << 20


class Mailbox:
    """Answers requests with what was written for them, in the journal (`kb-evolve tell`) or in a folder.

    A question is NUMBER-TURN/prompt.md with context.json beside it; its answer is reply.md in the same folder, taken
    once the file has stayed the same for one look. Waiting has no time limit: the run ends by its own budget.
    """

    name = NAME

    def __init__(self, journal: Journal, folder: Path | None = None, poll_s: float = POLL_S) -> None:
        self._journal, self._folder, self._poll_s = journal, folder, poll_s
        self._closed = threading.Event()

    def ask(self, request: Request) -> Reply:
        """The answer, once there is one. ModelError("cancelled") when the run stops first."""
        started = time.monotonic()
        if (recorded := self._journal.reply(request.number, request.turn)) is not None:
            return recorded
        self._journal.open(request, 0.0)
        place = self._post(request)
        seen = b""
        while not self._closed.wait(self._poll_s):
            if (recorded := self._journal.reply(request.number, request.turn)) is not None:
                return recorded
            found = _read(place)
            if found and found == seen:
                usage = Usage(NAME, latency_s=time.monotonic() - started)
                reply = Reply(found.decode(errors="replace"), usage=usage)
                self._journal.close(request, reply)
                return reply
            seen = found
        raise ModelError("cancelled", "the run stopped before anybody answered; the question stays open")

    def close(self) -> None:
        """Lets everybody who waits go."""
        self._closed.set()

    def _post(self, request: Request) -> Path | None:
        """Writes the question into the folder; gives the place of its answer."""
        if self._folder is None:
            return None
        place = self._folder / f"{request.number:06d}-{request.turn}"
        if not place.exists():
            unready = self._folder / f".{request.number:06d}_{request.turn}.part"
            unready.mkdir(parents=True, exist_ok=True)
            context = {name: value for name, value in asdict(request).items() if name != "messages"}
            (unready / "context.json").write_text(json.dumps(context, indent=1), encoding="utf-8")
            (unready / "prompt.md").write_text(prompt_text(request), encoding="utf-8")
            unready.rename(place)  # nobody sees half a question
        log.info("question waits for an answer file=%s", place / "reply.md")
        return place / "reply.md"


def prompt_text(request: Request) -> str:
    """The conversation as one text, for people."""
    return "\n\n".join(f"# {message.role}\n\n{message.content}" for message in request.messages) + "\n"


def _read(place: Path | None) -> bytes:
    if place is None:
        return b""
    try:
        with place.open("rb") as file:
            return file.read(LONGEST_REPLY_BYTES)
    except FileNotFoundError:
        return b""

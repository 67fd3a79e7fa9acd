"""A journal in memory, for tests of models."""

from __future__ import annotations

import threading

from mutators.dialogue import Message, ModelError, Reply, Request


class MemoryJournal:
    """Keeps what it is told, in the order told."""

    def __init__(self) -> None:
        self.requests: dict[tuple[int, int], tuple[Request, float | None]] = {}
        self.replies: dict[tuple[int, int], Reply] = {}
        self.failures: list[tuple[Request, ModelError]] = []
        self._lock = threading.Lock()

    def reply(self, number: int, turn: int) -> Reply | None:
        with self._lock:
            return self.replies.get((number, turn))

    def open(self, request: Request, worst_usd: float | None) -> None:
        with self._lock:
            self.requests.setdefault((request.number, request.turn), (request, worst_usd))

    def close(self, request: Request, reply: Reply) -> None:
        with self._lock:
            assert (request.number, request.turn) not in self.replies
            self.replies[request.number, request.turn] = reply

    def fail(self, request: Request, error: ModelError) -> None:
        with self._lock:
            self.failures.append((request, error))


def request(number: int = 3, turn: int = 0, model: str = "mailbox", text: str = "make it faster") -> Request:
    """A small request."""
    return Request(number, turn, "rewrite", model, (Message("system", "You write kernels."), Message("user", text)))

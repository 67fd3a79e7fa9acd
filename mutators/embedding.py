"""Novelty by meaning: programs whose embeddings point the same way. Off unless a model for it is named.

Unlike a fingerprint this is a guess: it may call a better program a duplicate, because one changed constant hardly
turns an embedding. So only what a model wrote is compared, never what `tune` or `knobs` changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from islands.candidate import Candidate
from islands.turns import EMBED
from mutators.dialogue import Message, Model, ModelError, Request
from mutators.proposal import Usage, add_usage
from mutators.vectors import cosine, digest_of, unpacked

log = logging.getLogger(__name__)

TURN = 1_000
"""Of the request for a program's vector within its ticket: behind those of any conversation. The next one is for those
of other programs, which whoever needs them first asks for."""


@dataclass(frozen=True, slots=True)
class Likeness:
    """The member most like a program, and what the program's own vector cost."""

    id: str = ""
    """Empty where nothing is known to be like it."""
    cosine: float = 0.0
    usage: Usage = field(default_factory=Usage)


class Embeddings:
    """Compares programs by the vectors of one model. Safe to use from several threads.

    Each program is embedded once, also over a restart: `recorded` are the replies to earlier requests.
    """

    def __init__(self, model: Model, name: str, recorded: Iterable[str] = ()) -> None:
        self.name, self._model = name, model
        self._lock, self._learning = threading.Lock(), threading.Lock()
        self._vectors: dict[str, Any] = {}
        for reply in recorded:
            self._keep(reply)

    def nearest(self, number: int, island: int, source: str, members: Sequence[Candidate]) -> Likeness:
        """The member most like `source`, of equals the first; nothing where there is no member or no embedding.

        `number` and `island` are the ticket's. It pays for the program's vector, whoever else has asked for which.
        """
        if not members:
            return Likeness()
        usage = Usage()
        try:
            usage = self._learn(number, TURN, island, [source])
            with self._learning:  # so that no other thread asks for the same
                self._learn(number, TURN + 1, island, [member.source for member in members])
        except ModelError as error:
            log.warning("no embedding, taken as new model=%s ticket=%d reason=%s", self.name, number, error.reason)
            return Likeness(usage=add_usage(usage, error.usage))
        with self._lock:
            own = self._vectors[digest_of(source)]
            found = [(cosine(own, self._vectors[digest_of(member.source)]), member.id) for member in members]
        best, nearest = max(found, key=lambda pair: pair[0])
        return Likeness(nearest, best, usage)

    def _learn(self, number: int, turn: int, island: int, texts: Sequence[str]) -> Usage:
        """Asks for the vectors that are not known; what they cost."""
        unknown = self._unknown(texts)
        if not unknown:
            return Usage()
        messages = tuple(Message("user", text) for text in unknown)
        request = Request(number, turn, EMBED, self.name, messages, island=island, max_tokens=0, wants="vectors")
        reply = self._model.ask(request)
        self._keep(reply.text)
        if missing := self._unknown(texts):
            reason = f"{self.name} gave no usable vector for {len(missing)} of {len(texts)} programs"
            raise ModelError("bad_reply", reason, reply.usage)
        return reply.usage

    def _unknown(self, texts: Sequence[str]) -> list[str]:
        with self._lock:
            return [text for text in dict.fromkeys(texts) if digest_of(text) not in self._vectors]

    def _keep(self, reply: str) -> None:
        try:
            vectors = unpacked(reply)
        except ValueError as error:
            log.warning("vectors cannot be read model=%s reason=%s", self.name, error)
            return
        with self._lock:
            self._vectors.update(vectors)

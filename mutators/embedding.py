"""Novelty by meaning: programs whose embeddings point the same way. Off unless somebody builds an EmbeddingNovelty.

Unlike a fingerprint this is a guess: it may call a better program a duplicate, because one changed constant hardly
turns an embedding. So it belongs where proposals are cheap and measurements dear, and its answer is a reason to ask
a model again, never a verdict.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from islands.candidate import Candidate
from mutators.dialogue import ModelError

log = logging.getLogger(__name__)

Embed = Callable[[str], Sequence[float]]
"""Gives a text's embedding; raises ModelError where it cannot."""


class EmbeddingNovelty:
    """Compares a source with an island's members. Safe to use from several threads.

    Remembers the embeddings of what it has seen, so that each source is embedded once.
    """

    def __init__(self, embed: Embed, threshold: float) -> None:
        """`threshold`: from this cosine on, up to 1, two sources count as one. ValueError outside 0..1."""
        if not 0 < threshold <= 1:
            raise ValueError(f"threshold of embedding novelty must lie above 0 and at most at 1, found {threshold}")
        self.threshold = threshold
        self._embed = embed
        self._directions: dict[str, Any] = {}

    def nearest(self, source: str, members: Iterable[Candidate]) -> tuple[str, float] | None:
        """Id and cosine of the member most like `source`, of equals the first; None for no members.

        A vector that has no direction (zeros, not finite) or another length than the member's is like nothing.
        Raises what `embed` raises.
        """
        own = self._direction(source)
        found: tuple[str, float] | None = None
        for member in members:
            likeness = _cosine(own, self._direction(member.source))
            if found is None or likeness > found[1]:
                found = member.id, likeness
        return found

    def name_of(self, source: str, members: Iterable[Candidate]) -> str | None:
        """The id of the member that `source` repeats; None for a new one, and where embeddings cannot be had."""
        try:
            found = self.nearest(source, members)
        except ModelError as error:
            log.warning("no embedding, taken as new reason=%s", error.reason)
            return None
        return found[0] if found is not None and found[1] >= self.threshold else None

    def _direction(self, source: str) -> Any:
        if source not in self._directions:
            self._directions[source] = _unit(self._embed(source))
        return self._directions[source]


def _unit(vector: Sequence[float]) -> Any:
    """The vector at length 1, in double precision; an empty one where it has no direction."""
    import numpy as np

    values = np.asarray(vector, dtype=np.float64).ravel()
    length = float(np.linalg.norm(values))
    return values / length if length > 0 and math.isfinite(length) else values[:0]


def _cosine(one: Any, other: Any) -> float:
    return float(one @ other) if len(one) == len(other) > 0 else 0.0


def through_litellm(model: str, api_base: str = "", api_key_env: str = "", timeout_s: float = 30.0) -> Embed:
    """An `embed` that asks a model through litellm, as `openai/text-embedding-3-small` or any server by `api_base`.

    One request per text, without retries. What a provider charges for it is in no ledger: meant for a server of one's
    own.
    """

    def embed(text: str) -> Sequence[float]:
        from mutators.faults import redact, secrets_of
        from mutators.wire import load_litellm

        key = os.environ.get(api_key_env, "") if api_key_env else "none" if api_base else ""
        where: dict[str, Any] = {"api_base": api_base} if api_base else {}
        where |= {"api_key": key} if key else {}
        try:
            reply = load_litellm().embedding(
                model=model, input=[text], timeout=timeout_s, max_retries=0, encoding_format="float", **where
            )
            return [float(number) for number in reply.data[0]["embedding"]]
        except Exception as error:  # litellm's own, and whatever a server's odd answer makes it raise
            reason = redact(f"{type(error).__name__}: {error}", secrets_of(key))[:500]
            raise ModelError("server", f"{model} gave no embedding: {reason}") from None

    return embed

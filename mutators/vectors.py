"""Embeddings as text, as they stand in a record: half precision, which turns a cosine by less than 0.001."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

NUMBER = "<f2"
DIGEST_CHARS = 32


def digest_of(text: str) -> str:
    """The name of a text in a record."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:DIGEST_CHARS]


def packed(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> str:
    """JSON: by the digest of each text its vector at length 1, in base64. ValueError for vectors of another number, or
    of what is no number."""
    pairs = zip(texts, vectors, strict=True)
    coded = {digest_of(text): base64.b64encode(_unit(vector).astype(NUMBER).tobytes()) for text, vector in pairs}
    return json.dumps({name: code.decode() for name, code in coded.items()})


def unpacked(text: str) -> dict[str, Any]:
    """The vectors by digest, in single precision. ValueError for a text that `packed` did not write."""
    import numpy as np

    try:
        entries = json.loads(text).items()
        return {name: _unit(np.frombuffer(base64.b64decode(one, validate=True), NUMBER)) for name, one in entries}
    except (AttributeError, TypeError, RecursionError) as error:
        raise ValueError(f"expected a JSON object of base64, found {text[:80]!r}") from error


def cosine(one: Any, other: Any) -> float:
    """Of two vectors at length 1; 0 where one has no direction, or their numbers of elements differ."""
    return float(one @ other) if len(one) == len(other) else 0.0


def _unit(vector: Any) -> Any:
    """At length 1; zeros where it has no direction (zeros, not finite)."""
    import numpy as np

    values = np.asarray(vector, dtype=np.float64).ravel()
    length = float(np.linalg.norm(values))
    is_fit = length > 0 and math.isfinite(length)
    return (values / length if is_fit else np.zeros_like(values)).astype(np.float32)

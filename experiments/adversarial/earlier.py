"""The result of an earlier part of the same run, where its journal is no longer at hand: its repetitions count."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.adversarial.catalogue import Kernel
from experiments.adversarial.counting import Outcome


class EarlierPart:
    """A document that `run` wrote; without a path an empty one. ValueError for a file that is none."""

    def __init__(self, path: Path | None = None) -> None:
        document: dict[str, Any] = {"rows": []} if path is None else json.loads(path.read_text())
        if "rows" not in document:
            raise ValueError(f"{path} must be what an earlier run wrote with --out, found no 'rows' in it")
        self._rows: dict[str, dict[str, Any]] = {row["kernel"]: row for row in document["rows"]}
        self.judges: Counter[str] = Counter(document.get("judges", {}))
        self.devices: frozenset[str] = frozenset(document.get("device_names", []))

    def counts(self, kernels: Sequence[Kernel]) -> dict[str, int]:
        """Repetitions by kernel that need not be made again.

        A twin counts no more than the kernels that are compared with it: their times are set against its times of the
        same minutes.
        """
        made = {kernel.key: sum(self._row(kernel.key)["verdicts"].values()) for kernel in kernels}
        for kernel in kernels:
            twin = f"{kernel.backend}/{kernel.twin}"
            if twin in made and kernel.expect != "rejected":
                made[twin] = min(made[twin], made[kernel.key])
        return made

    def joined(self, found: Outcome) -> Outcome:
        """An outcome with the earlier repetitions added; times are those of the part with more of them."""
        row = self._row(found.kernel.key)
        timed = row if sum(row["verdicts"].values()) > sum(found.verdicts.values()) else found.to_json()
        interval = timed["time_ratio_ci"]
        return dataclasses.replace(
            found,
            verdicts=dict(Counter(row["verdicts"]) + Counter(found.verdicts)),
            false_scores=(*row["false_scores"], *found.false_scores),
            unexpected=row["unexpected_verdicts"] + found.unexpected,
            requeued=row["requeued"] + found.requeued,
            kernel_ms=timed["kernel_ms"],
            time_ratio=timed["time_ratio"],
            time_ratio_ci=None if interval is None else (interval[0], interval[1]),
            reason=timed["reason"],
        )

    def _row(self, key: str) -> dict[str, Any]:
        empty = {"verdicts": {}, "false_scores": [], "unexpected_verdicts": 0, "requeued": 0}
        return self._rows.get(key, empty)

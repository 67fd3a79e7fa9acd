"""What docs/decisions/0007 says of our times beside KernelBench's is what the committed figures say."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTE = ROOT / "docs/decisions/0007-kernel-ms-as-kernelbench-runtime.md"
FIGURES = ROOT / "experiments/bench/results/kernelbench_cost.json"


def test_every_ratio_of_the_note_follows_from_the_committed_figures():
    rows = [line.strip("| ").split(" | ") for line in NOTE.read_text().splitlines() if line.startswith("| level")]
    figures = json.loads(FIGURES.read_text())
    assert sorted(row[0] for row in rows) == sorted(figures["theirs"])
    for name, judged, *_, kernel_ratio, _, _, reference_ratio in rows:
        theirs = figures["theirs"][name]
        ours = [one for one in figures["ours"].values() if (one["name"], one["verdict"]) == (name, "correct")]
        assert len(ours) == int(judged)
        told = {"runtime_ms": kernel_ratio, "reference_ms": reference_ratio}
        for their_name, our_name in (("runtime_ms", "kernel_ms"), ("reference_ms", "reference_ms")):
            centre = statistics.median(one[our_name] for one in ours)
            expected = f"{centre / theirs[their_name]:.3f}" if theirs[their_name] > 0 else "-"
            assert told[their_name] == expected, (name, our_name)

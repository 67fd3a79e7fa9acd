"""Seeds from bundles (kb_evolve/export/bundle.py), and from KernelBench's layout as we write it: the exact sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_evolve.export.opened import Bundle, is_bundle, read_bundle
from kb_evolve.export.portable import portable
from kb_evolve.export.sealed import BundleError
from kb_evolve.report.text import one_line
from kb_evolve.seeding.seed import Gathered, Seed
from problems.problem import Problem

BUNDLES_LIMIT = 100
"""Bundles of one folder that are read: each is checked whole."""


def bundles_in(path: Path) -> list[Path]:
    """The folder itself where it is a bundle, else those of its own folders that are, by name; no link is followed."""
    if is_bundle(path):
        return [path]
    if not path.is_dir():
        return []
    return [entry for entry in sorted(path.iterdir()) if not entry.is_symlink() and is_bundle(entry)]


def bundle_seeds(folders: list[Path], problem: Problem, backend: str) -> Gathered:
    """The elites of bundles of this problem and backend; what is left out is told with its reason."""
    seeds, left_out = [], []
    for folder in folders[:BUNDLES_LIMIT]:
        try:
            bundle = read_bundle(folder)
        except BundleError as error:
            left_out.append(str(error))
            continue
        if reason := _unfit(bundle, problem, backend):
            left_out.append(f"{folder}: {reason}")
        else:
            seeds.append(Seed(bundle.source, _origin(bundle)))
    if len(folders) > BUNDLES_LIMIT:
        left_out.append(f"{len(folders) - BUNDLES_LIMIT} more bundles: at most {BUNDLES_LIMIT} are read of one folder")
    return Gathered(tuple(seeds), tuple(left_out))


def evolved_source(provenance: Any, name: str, text: str) -> tuple[str, dict[str, Any]]:
    """The source that an exported file was made of, with where it came from; the text itself where none is on record.

    `provenance` is what provenance.json beside the file holds. What it says counts only where exporting that source
    gives this very text.
    """
    samples = provenance.get("samples") if isinstance(provenance, dict) else None
    for sample in samples if isinstance(samples, list) else ():
        if not isinstance(sample, dict) or sample.get("file") != name or not isinstance(sample.get("source"), str):
            continue
        if text in (sample["source"], portable(sample["source"])):
            candidate = sample.get("candidate_id")
            origin = {"candidate": candidate, **_run_fields(provenance, str(candidate))}
            return sample["source"], {key: one_line(value) for key, value in origin.items() if isinstance(value, str)}
    return text, {}


def _run_fields(provenance: dict[str, Any], candidate: str) -> dict[str, Any]:
    """Name and id of the candidate's run, of those on record: a candidate's id begins with its run's."""
    runs = provenance.get("runs")
    for run in [provenance.get("run"), *(runs if isinstance(runs, list) else [])]:
        if isinstance(run, dict) and run.get("id") == candidate.rpartition("-")[0]:
            return {"run": run.get("name"), "run_id": run.get("id")}
    return {}


def _unfit(bundle: Bundle, problem: Problem, backend: str) -> str:
    """Why a bundle's kernel is none for this problem and backend; empty where it is one."""
    if bundle.backend != backend:
        return f"its kernel is for backend {bundle.backend}, these must be for {backend}"
    if bundle.problem.sha256 != problem.sha256:
        return (
            f"its problem is {bundle.problem.id} with sha256 {bundle.problem.sha256[:12]}, not {problem.id} with "
            f"{problem.sha256[:12]}; to try its kernel all the same, name {bundle.path / 'elite.py'}"
        )
    return ""


def _origin(bundle: Bundle) -> dict[str, Any]:
    return {
        "kind": "bundle",
        "path": str(bundle.path),
        "bundle_sha256": bundle.sha256,
        "candidate": one_line(bundle.candidate_id),
        "run": one_line(bundle.run_name),
        "run_id": one_line(bundle.run_id),
        "problem": one_line(bundle.problem.id),
        "device_name": one_line(bundle.claim.device_name),
        "speedup": bundle.claim.speedup,
    }

"""A bundle as it is read: hostile until every part of it was checked, and then still only text to be judged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fitness.evaluation import Evaluation, Verdict
from kb_evolve.export.bundle import ELITE, ENVIRONMENT, EVALUATIONS, FORMAT, INDEX, PROBLEM, VERSION
from kb_evolve.export.sealed import SUMS, BundleError, is_sealed, json_of, text_of, unseal
from problems.catalogue import check_source, load
from problems.kernelbench import REFERENCE
from problems.problem import PRECISIONS, Problem, ProblemError

LIMITS = {"timeout_s": 300.0, "build_timeout_s": 1200.0, "memory_bytes": 64 << 30}
"""Most that a bundle's own settings are granted [s, s, B]."""
TEXT_LIMIT = 4_096
"""Longest name or id: that of a problem may be a path."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """An elite and what is claimed of it."""

    path: Path
    sha256: str
    """Of the list of checksums: names the bundle to its last byte."""
    files: frozenset[str]
    """Paths that the checksums name, their list included."""
    problem: Problem
    source: str
    candidate_id: str
    run_id: str
    run_name: str
    backend: str
    precision: str
    device: str
    claim: Evaluation
    judge: dict[str, Any]
    """Settings that the kernel was judged with, of those in [judge]: times, memory, allow_fast_math."""
    packages: dict[str, str]
    """Versions where the bundle was written."""


def is_bundle(path: Path) -> bool:
    """Whether a folder looks like a bundle; whether it is a good one, `read_bundle` says."""
    return is_sealed(path, INDEX)


def read_bundle(path: str | Path) -> Bundle:
    """The bundle in a folder, every file fitting its checksum and every part the others.

    Nothing of it is run. BundleError for whatever does not fit, with the file and what is wrong about it.
    """
    folder = Path(path).expanduser()
    contents = unseal(folder)
    index = _fields(json_of(contents, INDEX, folder), folder / INDEX)
    if index.get("format") != FORMAT:
        raise BundleError(f"{folder / INDEX}: format must be {FORMAT!r}, found {_shown(index.get('format'))}")
    if index.get("version") != VERSION:
        found = _shown(index.get("version"))
        raise BundleError(
            f"{folder / INDEX}: version {found}, this kb_evolve reads version {VERSION}: use one that reads it"
        )
    environment = _fields(json_of(contents, ENVIRONMENT, folder), folder / ENVIRONMENT)
    problem = _problem(_part(index, "problem", folder / INDEX), text_of(contents, PROBLEM, folder), folder)
    source = text_of(contents, ELITE, folder)
    run = _part(index, "run", folder / INDEX)
    elite = _text(index, "elite", folder / INDEX)
    claim = _claim(json_of(contents, EVALUATIONS, folder), elite, folder / EVALUATIONS)
    if claim.source_sha256 != (found := hashlib.sha256(source.encode()).hexdigest()):
        raise BundleError(
            f"{folder / ELITE} is not what was evaluated: {EVALUATIONS} is about sha256 {claim.source_sha256[:64]}, "
            f"the file has {found}"
        )
    return Bundle(
        path=folder,
        sha256=hashlib.sha256(contents[SUMS]).hexdigest(),
        files=frozenset(contents),
        problem=problem,
        source=source,
        candidate_id=elite,
        run_id=_text(run, "id", folder / INDEX),
        run_name=_text(run, "name", folder / INDEX),
        backend=_text(index, "backend", folder / INDEX),
        precision=_precision(index, folder / INDEX),
        device=_text(environment, "device", folder / ENVIRONMENT),
        claim=claim,
        judge=_judge(environment, folder / ENVIRONMENT),
        packages=_packages(environment),
    )


def known_problem(name: str, kernelbench: str | None = None) -> Problem | None:
    """The bundled problem or KernelBench's of that name; None for any other, also for one named by a path."""
    if not (name.isidentifier() or REFERENCE.fullmatch(name)):
        return None
    try:
        return load(name, kernelbench)
    except ProblemError:
        return None


def _problem(fields: dict[str, Any], source: str, folder: Path) -> Problem:
    """The problem with the sha256 that the index gives; its syntax is checked, its code is not run."""
    where = folder / INDEX
    name, sha256 = _text(fields, "id", where), _text(fields, "sha256", where)
    problem = Problem(id=name, name=Path(name).stem or name, source=source)
    if problem.sha256 != sha256:
        raise BundleError(f"{folder / PROBLEM} has sha256 {problem.sha256}, {INDEX} says {sha256}")
    try:
        check_source(source, str(folder / PROBLEM))
    except ProblemError as error:
        raise BundleError(str(error)) from error
    return problem


def _claim(document: Any, elite: str, where: Path) -> Evaluation:
    """The elite's evaluation; BundleError unless it is one of a correct, timed kernel."""
    import dacite

    entries = document if isinstance(document, list) else []
    found = [one for one in entries if isinstance(one, dict) and one.get("candidate") == elite]
    if len(found) != 1:
        raise BundleError(f"{where} must hold one evaluation of the elite {elite}, found {len(found)}")
    fields = _part(found[0], "evaluation", where)
    try:
        claim = dacite.from_dict(Evaluation, fields, dacite.Config(strict=True, cast=[tuple, Verdict]))
    except (dacite.DaciteError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{where}: the evaluation of {elite} is not one: {str(error)[:300]}") from error
    if not claim.is_correct:
        raise BundleError(f"{where}: the elite {elite} was judged {claim.verdict}; a bundle holds a correct kernel")
    assert claim.speedup is not None and claim.speedup_ci is not None
    if not claim.speedup_ci[0] <= claim.speedup <= claim.speedup_ci[1]:
        raise BundleError(
            f"{where}: the interval of the elite's speedup {claim.speedup_ci} does not hold its speedup {claim.speedup}"
        )
    return claim


def _judge(environment: dict[str, Any], where: Path) -> dict[str, Any]:
    """The judge's settings that are numbers, cut to LIMITS; the sandbox is the reader's own affair."""
    stored = _part(_part(environment, "config", where), "judge", where)
    kept: dict[str, Any] = {"allow_fast_math": stored.get("allow_fast_math") is True}
    for name, most in LIMITS.items():
        value = stored.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            kept[name] = type(most)(min(value, most))
        elif value is not None:
            raise BundleError(f"{where}: [judge] {name} must be a number above 0, found {_shown(value)}")
    return kept


def _precision(index: dict[str, Any], where: Path) -> str:
    if (precision := _text(index, "precision", where)) not in PRECISIONS:
        raise BundleError(f"{where}: unknown precision {_shown(precision)}; possible: {', '.join(PRECISIONS)}")
    return precision


def _packages(environment: dict[str, Any]) -> dict[str, str]:
    exported = environment.get("exported_by")
    packages = exported.get("packages") if isinstance(exported, dict) else None
    found = packages.items() if isinstance(packages, dict) else ()
    return {name[:TEXT_LIMIT]: version[:TEXT_LIMIT] for name, version in found if isinstance(version, str)}


def _part(document: dict[str, Any], name: str, where: Path) -> dict[str, Any]:
    return _fields(document.get(name), where, f"{name} ")


def _fields(value: Any, where: Path, name: str = "") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BundleError(f"{where}: {name}must be a JSON object, found {_shown(value)}")
    return value


def _text(document: dict[str, Any], name: str, where: Path) -> str:
    value = document.get(name)
    if not isinstance(value, str) or not value or len(value) > TEXT_LIMIT:
        raise BundleError(f"{where}: {name} must be a text of 1 to {TEXT_LIMIT} characters, found {_shown(value)}")
    return value


def _shown(value: Any) -> str:
    return f"{value!r:.100}" if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"

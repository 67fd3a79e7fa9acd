"""What stands below each figure of a run's page, and what is read aloud in its place."""

from __future__ import annotations

from kb_evolve.report import cells, curves, roofline, series, timings
from kb_evolve.report.figures import MIGRATIONS_DRAWN
from kb_evolve.report.record import Record
from kb_evolve.report.style import DOTS
from kb_evolve.report.text import one_line, rate_text, speedup_text
from kb_evolve.report.timeline import timeline


def captions(record: Record) -> dict[str, str]:
    """By figure, in the page's order."""
    return {
        "progress": "Every dot is a correct candidate, at the speedup found in rounds that alternate it with the "
        f"baseline. The line is the elite of the run, its band that candidate's 95% interval. {_luck(record)}"
        f"{_sample(record)}",
        "wall": "The same by the time for which the run had worked; pauses between its parts are left out."
        f"{_sample(record)}",
        "dollars": "The same by what models had cost when each candidate was told, failed calls included."
        f"{_sample(record)}",
        "islands": _islands(record),
        "pareto": "Each correct candidate by kernel time and peak memory; the colour is its error against a "
        "double-precision oracle, relative to the reference's own error. Lower is better in all three; ringed kernels "
        f"form the Pareto front, of which all are drawn.{_sample(record)}",
        "cells": _cells(record),
        "timings": _timings(record),
        "roofline": _roofline(record),
        "funnel": "How many asks reached each stage; in brackets, the share of the stage before. Faster means that the "
        "whole 95% interval of the speedup lies above 1.",
        "timeline": _timeline(record),
    }


def alternatives(record: Record) -> dict[str, str]:
    """By figure, the picture in a sentence."""
    winner = series.best(record.history)
    reached = speedup_text(winner.evaluation.speedup) if winner else "no correct candidate"
    stages = series.funnel(record.history, record.attempts)
    return {
        "progress": f"Best speedup by evaluation number; it ends at {reached}.",
        "wall": f"Best speedup by running time; it ends at {reached}.",
        "dollars": f"Best speedup by money spent; it ends at {reached}.",
        "islands": f"Each island's best speedup by evaluation, with {len(record.replayed.migrations)} migrations.",
        "pareto": "Scatter of kernel time against peak memory; the table below lists the front.",
        "cells": "Heat map of the elites by the two axes in which they differ most.",
        "timings": "Distribution of kernel and reference times, and the 95% intervals of the fastest programs.",
        "roofline": "Arithmetic rates of the kernels below the device's limits.",
        "funnel": "Candidates by stage: " + ", ".join(f"{stage.name} {stage.count}" for stage in stages) + ".",
        "timeline": "Candidates told per minute, and the load of judge and builders, by running time.",
    }


def _luck(record: Record) -> str:
    duels, bouts = (sum(event.kind == kind for event in record.events) for kind in ("duel", "bout"))
    if duels or bouts:
        return (
            f"What beat the best was measured again, and only the second figure counts ({duels} times); kernels in "
            f"doubt were measured afresh ({bouts} times). A step down is an elite that so lost its place."
        )
    return "The best of many noisy measurements tends to be a lucky one: measure it afresh to quote it."


def _sample(record: Record) -> str:
    """Which dots of dense scatters are drawn."""
    count = sum(each.evaluation.is_correct for each in record.history)
    return f" Of {count:,} dots {DOTS:,} are drawn, evenly spaced in the order told." if count > DOTS else ""


def _islands(record: Record) -> str:
    marks = curves.migrations(record)
    moved, reset = sum(not mark.is_reset for mark in marks), sum(mark.is_reset for mark in marks)
    text = (
        f"Each island's best among the candidates that it found itself. A mark stands where a copy from another island "
        f"arrived ({moved:,}), at its speedup and in the colour of the island that took it in."
    )
    if reset:
        text += f" Crosses: islands that started again from another's best ({reset:,})."
    if len(marks) > MIGRATIONS_DRAWN:
        text += f" Of {len(marks):,} marks {MIGRATIONS_DRAWN} are drawn, evenly spaced."
    return text


def _cells(record: Record) -> str:
    found = cells.heat_map(record.replayed)
    if found is None:
        return "The map of elites holds the best kernel of each kind; it is empty."
    others = f" They differ in {', '.join(found.other_axes)} too, which is not drawn." if found.other_axes else ""
    return (
        f"Elites at the end: {len(record.replayed.cells):,}, the best of each kind on each island. A square "
        f"shows the fastest of those that lie in it, and in brackets how many that are. These are single "
        f"measurements: the highest is often a lucky one, and not the elite of the run.{others}"
    )


def _timings(record: Record) -> str:
    found = timings.timings(record.history)
    if found is None:
        return "No correct candidate was timed."
    return (
        f"Left: the share of {len(found.kernel_ms):,} distinct programs that take at most this long, and the same of "
        f"the baseline's time measured beside each, whose spread is the machine's. Right: the elite and the fastest "
        f"others with their 95% intervals; half of all are narrower than {found.median_width:.1%} of the time."
    )


def _roofline(record: Record) -> str:
    found = roofline.roofline(record)
    if found is None:
        return f"No roofline: {roofline.why_no_roofline(record)}."
    source = one_line(found.peaks_source, 200) or "measured on this machine when the run began, which reads low if busy"
    return (
        f"Williams, Waterman and Patterson's model with the bytes that the problem must move and the arithmetic of the "
        f"traced algorithm: {found.intensity:.3g} FLOP/B. The best kernel reaches "
        f"{rate_text(found.best_rate, 'FLOP/s')}, {found.share:.0%} of what the limits allow here. Limits: {source}."
    )


def _timeline(record: Record) -> str:
    found = timeline(record)
    if found is None:
        return "When candidates were told is not known."
    width_s = found.edges_s[1]
    busy = sum(found.judging) / len(found.judging)
    return (
        f"In steps of {width_s:.3g} s. The judge was busy for {busy:.0%} of the running time; builds run side by side, "
        f"so that their load can exceed 1. Work is placed just before its end was written down."
    )

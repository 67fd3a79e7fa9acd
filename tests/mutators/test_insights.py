"""Lessons of measured outcomes: what they say, and who is told them when."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fitness.evaluation import Evaluation, Verdict
from islands.candidate import Candidate, Evaluated, Ticket
from mutators.brief import Brief
from mutators.insights import (
    GROUP,
    MOST_WHAT,
    Bottleneck,
    Insight,
    Insights,
    InsightsConfig,
    bottleneck_of,
    insight_of,
    said,
)
from mutators.proposal import ProposalError

BRIEF = Brief("rmsnorm", "", "cuda", device_name="somebody's", facts={"bytes_per_s": 1e12, "flop_per_s": 1e13})
MEMORY = {"achieved_bytes_per_s": 0.9e12, "achieved_flop_per_s": 1e12}
LATENCY = {"achieved_bytes_per_s": 0.1e12, "achieved_flop_per_s": 1e12}


def evaluation(kernel_ms: float | None = 1.0, features=None, verdict: Verdict | None = None) -> Evaluation:
    times = {}
    if kernel_ms is not None:
        ci = (kernel_ms, kernel_ms)
        times = {"kernel_ms": kernel_ms, "kernel_ms_ci": ci, "reference_ms": 1.0, "speedup": 1 / kernel_ms,
                 "speedup_ci": ci}  # fmt: skip
    verdict = verdict or (Verdict.CORRECT if times else Verdict.WRONG_RESULT)
    return Evaluation(verdict, "", "rmsnorm", "cuda", "0", features=dict(features or {}), **times)


def child(number: int, what: str, kernel_ms: float | None, verdict: Verdict | None = None) -> Evaluated:
    candidate = Candidate(f"run-{number:06d}", number, 0, 1, "cuda", f"x = {number}", rationale=what)
    return Evaluated(candidate, evaluation(kernel_ms, verdict=verdict))


def ticket(stalled: int = 20, features=MEMORY, lineage=()) -> Ticket:
    parent = Evaluated(Candidate("run-999999", 999_999, 0, 3, "cuda", "y = 1"), evaluation(1.0, features))
    return Ticket(1_000_000, 0, "1", parent, lineage=tuple(lineage), stalled=stalled)


WORDS = ("loads", "tiles", "warps", "registers", "unrolling", "fusion", "streams", "swizzles", "barriers", "halves")


def memory_of(*children: Evaluated, config=InsightsConfig(), features=MEMORY) -> Insights:  # noqa: B008
    insights = Insights(BRIEF, config)
    for one in children:
        insights.tell(one, evaluation(1.0, features))
    return insights


# -- bottlenecks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "features"),
    [
        ("memory", MEMORY),
        ("memory", {"dram_percent": 85.0, "sm_percent": 40.0}),
        ("compute", {"achieved_bytes_per_s": 1e11, "achieved_flop_per_s": 0.9e13}),
        ("compute", {"dram_percent": 30.0, "sm_percent": 80.0}),
        ("latency", LATENCY),
        ("latency", {"dram_percent": 20.0, "sm_percent": 30.0}),
        ("latency", {"occupancy": 0.1}),
        ("launch", {**LATENCY, "device_us_per_call": 100.0, "launches_per_call": 3}),
        ("spill", {"spill_bytes": 400, "dram_percent": 60.0}),
        ("unknown", {}),
    ],
)
def test_a_bottleneck_is_named_after_its_largest_part(name, features):
    found = bottleneck_of(evaluation(1.0, features), BRIEF)
    assert found.name == name
    assert all(0 <= getattr(found, part) <= 1 for part in ("memory", "compute", "latency", "launch", "spill"))


def test_counters_are_preferred_to_rates():
    assert bottleneck_of(evaluation(1.0, {**MEMORY, "dram_percent": 10.0}), BRIEF).memory == pytest.approx(0.1)


def test_a_data_sheet_stands_in_for_peaks_that_were_not_measured():
    brief = replace(BRIEF, facts={}, device_name="NVIDIA H100 80GB HBM3")
    assert bottleneck_of(evaluation(1.0, {"achieved_bytes_per_s": 3.35e12 / 2}), brief).memory == pytest.approx(0.5)
    assert bottleneck_of(evaluation(1.0, MEMORY), replace(brief, device_name="x")).name == "unknown"


def test_a_cpu_program_of_many_operators_is_bound_by_their_passes():
    found = bottleneck_of(evaluation(1.0, {"operators_per_call": 10, "achieved_bytes_per_s": 4e11}), BRIEF)
    assert found.launch == pytest.approx(0.45) and found.latency == pytest.approx(0.55)


def test_a_failed_program_has_no_bottleneck():
    assert bottleneck_of(evaluation(None, MEMORY), BRIEF) == Bottleneck()


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "90", True, None, [1]])
def test_figures_that_a_candidate_made_up_are_no_figures(value):
    features = dict.fromkeys(("dram_percent", "sm_percent", "occupancy", "spill_bytes", "device_us_per_call"), value)
    assert bottleneck_of(evaluation(1.0, features), BRIEF).name == "unknown"


def test_similarity_is_one_for_equals_symmetrical_and_zero_between_known_and_unknown():
    memory, latency, nothing = Bottleneck(memory=0.9, latency=0.1), Bottleneck(memory=0.1, latency=0.9), Bottleneck()
    assert memory.similarity(memory) == nothing.similarity(nothing) == 1
    assert memory.similarity(latency) == latency.similarity(memory) == pytest.approx(0.2)
    assert memory.similarity(nothing) == nothing.similarity(memory) == 0


# -- lessons ------------------------------------------------------------------------------------


def test_a_lesson_says_what_was_tried_on_which_bottleneck_and_what_it_gave():
    texts = [
        str(insight_of(child(1, "Load float4.", kernel_ms, verdict), evaluation(1.0, MEMORY), BRIEF, 0.05))
        for kernel_ms, verdict in ((0.5, None), (1.25, None), (None, Verdict.WRONG_RESULT))
    ]
    assert texts == [
        "memory-bound parent: Load float4. -> 2.00x faster",
        "memory-bound parent: Load float4. -> 1.25x slower",
        "memory-bound parent: Load float4. -> failed: wrong_result",
    ]


@pytest.mark.parametrize(
    ("one", "parent"),
    [
        (child(1, "Load float4.", 0.98), evaluation(1.0)),
        (child(1, "   ", 0.5), evaluation(1.0)),
        (child(1, "Load float4.", None, Verdict.NO_VERDICT), evaluation(1.0)),
        (child(1, "Load float4.", 0.5), evaluation(None)),
        (child(1, "Load float4.", 0.5), None),
    ],
    ids=["noise", "no words", "no verdict", "failed parent", "no parent"],
)
def test_nothing_is_learnt_where_nothing_was_measured_or_said(one, parent):
    assert insight_of(one, parent, BRIEF, 0.05) is None


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400))
def test_words_of_a_lesson_are_one_short_line_of_visible_characters(text):
    line = said(text)
    assert len(line) <= MOST_WHAT and "\n" not in line and "\x1b" not in line
    assert said(line) == line or len(text) > MOST_WHAT


def test_words_of_five_megabytes_with_escapes_are_cut_and_cleaned():
    line = said("\x1b[31mred\x1b[0m \u202eevil\r\n" + "a" * 5_000_000)
    assert line.startswith("red ") and len(line) <= MOST_WHAT and line.endswith("...")
    assert not {"\x1b", "\u202e", "\n"} & set(line)


# -- recalling ----------------------------------------------------------------------------------


def test_lessons_are_told_on_plateaus_only():
    insights = memory_of(child(1, "Load float4.", 0.5))
    assert insights.recall(ticket(stalled=11)) == []
    assert insights.recall(ticket(stalled=12)) == ["memory-bound parent: Load float4. -> 2.00x faster"]


def test_lessons_can_be_switched_off():
    insights = memory_of(child(1, "Load float4.", 0.5), config=InsightsConfig(enabled=False))
    assert insights.recall(ticket()) == [] and len(insights) == 0


def test_a_parent_with_another_bottleneck_is_told_nothing():
    insights = memory_of(child(1, "Load float4.", 0.5))
    assert insights.recall(ticket(features=MEMORY)) and not insights.recall(ticket(features=LATENCY))
    assert not insights.recall(ticket(features={}))


def test_what_says_most_comes_first_and_what_did_not_work_keeps_two_places():
    faster = [child(number, f"Use {word}.", 1 - number / 20) for number, word in enumerate(WORDS[:7], 1)]
    worse = [child(11, "Sort inputs.", None), child(12, "Spin threads.", 2.0), child(13, "Copy twice.", 1.5)]
    found = memory_of(*faster, *worse).recall(ticket())
    assert [text.split(": ", 1)[1].split(" ->")[0] for text in found] == [
        "Use streams.",
        "Use fusion.",
        "Spin threads.",
        "Use unrolling.",
        "Copy twice.",
    ]


def test_without_gains_failures_fill_the_places_and_the_other_way_round():
    worse = [child(number, f"Use {word}.", 1 + number / 10) for number, word in enumerate(WORDS, 1)]
    better = [child(number, f"Use {word}.", 1 - number / 20) for number, word in enumerate(WORDS, 1)]
    assert len(memory_of(*worse).recall(ticket())) == len(memory_of(*better).recall(ticket())) == 5


def test_the_same_lesson_is_not_told_twice():
    insights = memory_of(child(1, "Load four floats at once.", 0.5), child(2, "load FOUR floats at once", 0.6))
    assert insights.recall(ticket()) == ["memory-bound parent: Load four floats at once. -> 2.00x faster"]


def test_relatives_that_the_prompt_shows_anyway_are_left_out():
    shown, other = child(1, "Load float4.", 0.5), child(2, "Split rows.", 0.6)
    assert memory_of(shown, other).recall(ticket(lineage=[shown])) == [
        "memory-bound parent: Split rows. -> 1.67x faster"
    ]


@settings(max_examples=10, deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_telling_changes_no_answer(rng):
    children = [
        child(number, f"Use {WORDS[number % 10]} in {WORDS[number % 7]}.", rng.choice([0.5, 0.7, 1.5, None]))
        for number in range(3 * GROUP)
    ]
    shuffled = rng.sample(children, len(children))
    one, other = memory_of(*children), memory_of(*shuffled)
    assert one.recall(ticket()) == other.recall(ticket()) and one.to_json() == other.to_json()


def test_what_is_held_for_a_ticket_stays_whatever_is_told_meanwhile():
    insights = memory_of(child(1, "Load float4.", 0.5))
    held, later = ticket(), replace(ticket(), number=1_000_001)
    insights.hold(held)
    insights.tell(child(2, "Split rows.", 0.4), evaluation(1.0, MEMORY))
    assert len(insights.recall(held)) == 1 and len(insights.recall(later)) == 2


def test_ten_thousand_candidates_leave_a_bounded_memory():
    rng = random.Random(3)
    insights = memory_of(*(child(n, " ".join(rng.sample(WORDS, 4)), rng.uniform(0.3, 3.0)) for n in range(10_000)))
    assert len(insights) == 2 * GROUP and len(insights.recall(ticket())) == 5


# -- other runs ---------------------------------------------------------------------------------


def test_lessons_go_from_one_run_to_another_of_the_same_problem():
    stored = json.loads(json.dumps(memory_of(child(1, "Load float4.", 0.5), child(2, "Split rows.", None)).to_json()))
    there = Insights(BRIEF)
    there.from_json(stored)
    assert there.to_json() == stored and len(there.recall(ticket())) == 2


@pytest.mark.parametrize("other", [replace(BRIEF, problem_id="softmax"), replace(BRIEF, backend="triton")])
def test_lessons_of_another_problem_or_backend_are_not_told(other):
    there = Insights(other)
    there.from_json(memory_of(child(1, "Load float4.", 0.5)).to_json())
    assert len(there) == 1 and there.recall(ticket()) == []


@pytest.mark.parametrize(
    "change",
    [
        {"gain": math.nan},
        {"gain": "much"},
        {"outcome": "splendid"},
        {"vector": {"memory": 2.0}},
        {"vector": {"luck": 0.5}},
        {"vector": None},
    ],
)
def test_a_stored_lesson_of_another_form_is_an_error(change):
    (stored,) = memory_of(child(1, "Load float4.", 0.5)).to_json()
    with pytest.raises(ProposalError, match="not of the form"):
        Insight.from_json({**stored, **change})
    with pytest.raises(ProposalError):
        Insights(BRIEF).from_json([7])


def test_stored_words_are_cleaned_again():
    (stored,) = memory_of(child(1, "Load float4.", 0.5)).to_json()
    assert Insight.from_json({**stored, "what": "a\nb\x1b[31m" + "c" * 900}).what.startswith("a bccc")

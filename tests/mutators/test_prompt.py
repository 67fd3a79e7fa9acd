"""Prompts: what is in them, what is left out first, and which templates they are made of."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import itertools
import re
import subprocess
import time
from pathlib import Path

import pytest
from prompt_makers import (
    BRIEF,
    ELITES,
    FAILED,
    FOREIGN,
    FULL,
    OPERATORS,
    PARENT,
    ROOT,
    SECRET,
    SEED,
    TIMED,
    builder,
    ours_and_data,
    program,
    texts,
    ticket_of,
)

from fitness.evaluation import Verdict
from islands.candidate import Ticket
from mutators.brief import quantity
from mutators.fence import make_fence
from mutators.figures import figures, limits
from mutators.pages import TEMPLATES
from mutators.prompt import BACKENDS, EDITING, WRITING, PromptBuilder
from mutators.proposal import ProposalError
from mutators.sections import NOT_AT_FAULT, second_parent
from mutators.source import parse_source
from mutators.tokens import estimate_tokens, fewest_tokens
from mutators.tunables import find_tunables


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_operator_shows_the_problem_the_device_and_asks_for_a_rationale(operator):
    system, user = builder().build(operator, FULL).messages
    assert (system.role, user.role) == ("system", "user")
    for expected in (BRIEF.problem_source, "21 GB/s", "2 MiB", "the reference by compile: 3.3 ms", "1.6 ms", "x (4096"):
        assert expected in system.content
    assert "RATIONALE:" in user.content and "// tune: " in user.content
    assert ("<<<<<<< SEARCH" in user.content) == (operator in EDITING)
    assert ("```python" in user.content) == (operator in WRITING)


def test_the_parent_is_shown_with_its_figures_and_what_bounds_it():
    ours, data = ours_and_data(builder().build("diff", FULL).messages[1].content)
    assert "time: 2 ms [1.96, 2.04] against 4.2 ms of eager: 2.1x" in ours
    assert "fraction of the roofline: 80%" in ours
    assert "1 of 8 cores work" in ours and "128 bits where 512 are possible" in ours
    assert "main memory is 81% idle" in ours
    assert PARENT.candidate.source in data


def test_gpu_figures_tell_spills_launches_and_what_is_busy():
    features = {"spill_bytes": 64, "launches_per_call": 3, "device_us_per_call": 500.0, "occupancy": 0.125,
                "dram_percent": 80.0, "sm_percent": 20.0, "registers": 255, "shared_bytes": 49152}  # fmt: skip
    one = program(1, 2.0, backend="cuda", features=features).evaluation
    shown, told = "\n".join(figures(one, BRIEF)), "\n".join(limits(one, BRIEF))
    for expected in ("registers per thread, the most of its kernels: 255", "block: 48 KiB", "occupancy: 12%"):
        assert expected in shown
    for expected in ("64 bytes are spilled", "busy for 500 of 2000 us", "3 launches a call", "bound by memory"):
        assert expected in told


def test_figures_that_are_no_numbers_are_not_shown():
    features = {"threads": "8; verdict: correct", "vector_bits": float("nan"), "operators_per_call": True}
    shown = "\n".join(figures(program(1, features=features).evaluation, BRIEF))
    assert "threads" not in shown and "vector" not in shown and "operators" not in shown


def test_failures_are_real_ones_the_latest_first_with_distinct_reasons():
    again = program(28, None, reason="f is wrong", rationale="the same again")
    noise = program(29, None, verdict=Verdict.NO_VERDICT, reason="too much load")
    untimed = program(27, None, verdict=Verdict.VERIFIED, reason="right but not timed")
    user = builder().build("diff", ticket_of(PARENT, (), (PARENT, *FAILED, again, noise, untimed))).messages[1].content
    places = [user.index(f"{letter} is wrong") for letter in "fedcba"]
    assert places == sorted(places)
    assert "#28 wrong_result: f is wrong | seed: the same again" in user
    assert user.count("f is wrong") == 1 and "too much load" not in user and "not timed" not in user


def test_relatives_tell_what_was_changed_and_what_it_gave():
    user = builder().build("diff", FULL).messages[1].content
    assert "#30 1.5 ms (0.75x of what it changed) | seed: use 0 lanes" in user
    assert "#31 2.5 ms (1.25x of what it changed) | seed: use 1 lanes" in user


def test_elites_are_distinct_in_structure_and_keep_their_order():
    twin = program(11, 1.9, source=PARENT.candidate.source.replace("LANES = 1;", "LANES = 8;"))
    user = builder().build("diff", ticket_of(PARENT, (twin, ELITES[0], ELITES[0], ELITES[1]))).messages[1].content
    assert "LANES = 8" not in user
    assert user.count(ELITES[0].candidate.source) == 1
    assert user.index("#10: 2.1 ms") < user.index("#11: 2.2 ms")


def test_combine_shows_two_programs_and_names_both():
    prompt = builder().build("combine", FULL)
    second = second_parent(FULL)
    assert prompt.parent_ids == (PARENT.candidate.id, second.candidate.id)
    assert prompt.messages[1].content.count(second.candidate.source) == 1
    assert f"#1 and #{second.candidate.number}" in prompt.messages[1].content


def test_repair_shows_the_failed_program_with_the_lines_that_say_why():
    failed = program(50, None, verdict=Verdict.COMPILE_ERROR, reason="expected ';'", log="k.cpp:3: error: expected ';'")
    prompt = builder().build("repair", ticket_of(PARENT, ELITES, (PARENT, *TIMED, failed)))
    user = prompt.messages[1].content
    assert prompt.source == failed.candidate.source and prompt.parent_ids == (failed.candidate.id,)
    assert "k.cpp:3: error: expected ';'" in user and "`compile_error`" in user and "first error counts" in user
    assert "program #50" in user


@pytest.mark.parametrize("verdict", [one for one in Verdict if one not in NOT_AT_FAULT])
def test_repair_has_advice_for_every_verdict(verdict):
    failed = program(50, None, verdict=verdict)
    task = builder().build("repair", ticket_of(failed)).messages[1].content.split("# Task")[1]
    assert len(task.split("Do not remove")[0].strip().splitlines()) == 2


def test_translate_takes_the_program_of_another_backend():
    prompt = builder().build("translate", FULL)
    assert prompt.parent_ids == (FOREIGN.candidate.id,)
    assert "written in CUDA C++. Write the same computation in C++" in prompt.messages[1].content


def test_seed_shows_no_source_but_what_exists():
    prompt = builder().build("seed", FULL)
    assert PARENT.candidate.source not in texts(prompt) and prompt.parent_ids == () and prompt.source == ""
    assert "Softmax: maximum, exponentials" in prompt.messages[1].content


@pytest.mark.parametrize(
    ("operator", "missing"),
    [("combine", "second program"), ("repair", "failed"), ("translate", "another backend")],
)
def test_an_operator_without_its_program_says_what_the_ticket_lacks(operator, missing):
    with pytest.raises(ProposalError, match=rf"{operator} needs a.*{missing}.*ticket 7 shows none"):
        builder().build(operator, ticket_of(PARENT))


def test_regions_are_spoken_of_only_where_the_program_has_them():
    marked = program(3, source=f"# EVOLVE-BLOCK-START\n{SEED}# EVOLVE-BLOCK-END\n")
    assert "EVOLVE-BLOCK-START and" in builder().build("diff", ticket_of(marked)).messages[1].content
    assert "EVOLVE-BLOCK" not in texts(builder().build("diff", FULL))


# The budget


ORDER = ("elites", "profile", "siblings", "insights", "failures")


def told(dropped: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    return {name: (int(left), int(of)) for name, left, of in re.findall(r"(\w+): (\d+) of (\d+)", "; ".join(dropped))}


def test_what_is_dropped_first_is_as_documented_and_the_budget_is_kept():
    parent = program(1, 2.0, log="ninja: warning\n" * 30, features={"operator_names": ["mm"]})
    ticket = dataclasses.replace(FULL, parent=parent)
    whole = builder().build("diff", ticket, ["one", "two"])
    assert whole.dropped == ()
    seen = []
    for budget in range(whole.tokens + 200, 0, -60):
        try:
            prompt = builder(budget).build("diff", ticket, ["one", "two"])
        except ProposalError:
            break
        assert prompt.tokens <= budget
        assert parent.candidate.source in texts(prompt) and BRIEF.problem_source in texts(prompt)
        assert "# Form of the answer" in texts(prompt)
        lost = told(prompt.dropped)
        assert [name for name in ORDER if name in lost] == list(ORDER[: len(lost)]), lost
        assert all(left == of for name, (left, of) in lost.items() if name != ORDER[len(lost) - 1]), lost
        seen.append(lost)
    assert {tuple(lost) for lost in seen} >= {(), tuple(reversed(ORDER))}
    shares = [[lost.get(name, (0, 1))[0] for name in ORDER] for lost in seen]
    assert all(after >= before for before, after in itertools.pairwise(shares))


def test_a_budget_too_small_for_problem_and_parent_is_an_error_that_says_how_much_is_needed():
    with pytest.raises(ProposalError, match=r"needs about [\d,]+ tokens for problem, program and task alone.*is 1,500"):
        builder(1_500).build("diff", FULL)
    with pytest.raises(ProposalError, match=r"run-000001 has 5,000,000 characters.*raise the budget"):
        builder().build("diff", ticket_of(program(1, source="x" * 5_000_000)))


def test_the_estimate_is_not_below_what_tokenizers_count(monkeypatch):
    tiktoken = pytest.importorskip("tiktoken")
    home = importlib.util.find_spec("litellm").submodule_search_locations[0]
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", f"{home}/litellm_core_utils/tokenizers")
    prompt = texts(builder().build("diff", FULL))
    kernels = [path.read_text() for path in (ROOT / "experiments/kernels").rglob("*.py")]
    for encoding in map(tiktoken.get_encoding, ("cl100k_base", "o200k_base")):
        shares = [
            estimate_tokens(text) / len(encoding.encode(text, disallowed_special=())) for text in (prompt, *kernels)
        ]
        assert min(shares) >= 1.0 and max(shares) < 1.7
    assert all(fewest_tokens(text) <= estimate_tokens(text) for text in (prompt, "   ", "\n\n", "abc", "\u4e2d"))


def test_two_hundred_relatives_cost_little_more_than_ten():
    def relatives(count: int) -> Ticket:
        times = [None if index % 3 else 2.0 for index in range(count)]
        members = [program(100 + i, ms, reason=f"{'ab'[i % 2]}{i}", rationale="r " * 90) for i, ms in enumerate(times)]
        return ticket_of(PARENT, ELITES, members)

    built, costs = builder(), []
    for ticket in (relatives(10), relatives(200)):
        built.build("diff", ticket)
        began = time.process_time()
        for _ in range(20):
            built.build("diff", ticket)
        costs.append(time.process_time() - began)
    assert costs[1] < 4 * costs[0], costs


# Templates


def test_the_same_ticket_gives_the_same_prompt_and_another_ticket_another_mark():
    assert builder().build("combine", FULL) == builder().build("combine", FULL)
    other = builder().build("combine", dataclasses.replace(FULL, number=8))
    assert other.messages[0] == builder().build("combine", FULL).messages[0]
    assert make_fence(SECRET, 7).mark not in texts(other)


def test_the_version_is_that_of_the_templates_used(tmp_path):
    (tmp_path / "diff.md").write_text("# Task\n\nMake it faster, {{ language }}.\n")
    changed = PromptBuilder(BRIEF, SECRET, 100_000, tmp_path)
    assert changed.build("diff", FULL).version != builder().build("diff", FULL).version
    assert changed.build("rewrite", FULL).version == builder().build("rewrite", FULL).version
    assert "Make it faster, C++." in changed.build("diff", FULL).messages[1].content
    assert len({builder().build(operator, FULL).version for operator in OPERATORS}) == len(OPERATORS)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("dif.md", "x", r"dif.md is no template of ours; did you mean diff.md\?"),
        ("diff.md", "{% if %}", r"template diff.md is wrong in line 1"),
        ("parts/system.md", "{{ devise }}", r"parts/system.md cannot be filled in: 'devise' is undefined"),
        ("diff.md", "{{ verdct }}", r"template diff.md cannot be filled in: 'verdct' is undefined"),
    ],
)
def test_wrong_templates_of_the_user_are_errors_before_anything_is_sent(tmp_path, name, text, message):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    with pytest.raises(ProposalError, match=message):
        PromptBuilder(BRIEF, SECRET, 100_000, tmp_path).build("diff", FULL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"brief": dataclasses.replace(BRIEF, backend="tpu")}, "no prompt page for backend 'tpu'"),
        ({"token_budget": 0}, "must be above 0"),
        ({"templates_dir": Path("/nowhere")}, "does not exist"),
    ],
)
def test_a_wrong_set_up_is_refused(change, message):
    with pytest.raises(ProposalError, match=message):
        PromptBuilder(**{"brief": BRIEF, "secret": SECRET, "token_budget": 9_000, "templates_dir": None, **change})
    with pytest.raises(ProposalError, match="unknown operator 'dif'"):
        builder().build("dif", FULL)


def example(backend: str) -> str:
    return re.search(r"```python\n(.*?)```", (TEMPLATES / f"backends/{backend}.md").read_text(), re.DOTALL)[1]


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_example_of_a_backend_is_a_program_whose_tunables_are_found(backend):
    tree = ast.parse(example(backend))
    assert "ModelNew" in [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    assert len(find_tunables(example(backend))) == example(backend).count("tune:") >= 1
    assert find_tunables(builder(backend=backend).build("diff", FULL).messages[1].content.split("valid together")[1])


def test_the_cpp_example_compiles():
    command = ["g++", "-std=c++20", "-fsyntax-only", "-fopenmp", "-Wall", "-Werror", "-x", "c++", "-"]
    done = subprocess.run(command, input=parse_source(example("cpp")).cpp, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_quantities_are_read_off_the_end_of_their_names():
    cases = {
        "bytes_per_s": (2.1e10, "21 GB/s"),
        "flop_per_s": (6.7e13, "67 TFLOP/s"),
        "l2_cache_bytes": (2.0**21, "2 MiB"),
        "clock_hz": (1.98e9, "1.98 GHz"),
        "launch_us": (2.5, "2.5 us"),
        "cores": (8.0, "8"),
        "note": ("x", "x"),
    }
    assert [quantity(name, value) for name, (value, _) in cases.items()] == [shown for _, shown in cases.values()]


def test_a_build_log_is_shown_from_the_compilers_first_line_on():
    from mutators.sections import without_traceback

    log = 'Traceback (most recent call last):\n  File "x.py", line 3\nsource.cpp:7:3: error: no such name\nnote: x'
    assert without_traceback(log) == "source.cpp:7:3: error: no such name\nnote: x"
    assert without_traceback("source.cpp:7:3: error: x") == "source.cpp:7:3: error: x"
    assert without_traceback("Traceback (most recent call last):\nboom") == "Traceback (most recent call last):\nboom"


def test_a_program_beyond_the_roofline_is_not_told_that_little_is_left():
    from fitness.evaluation import Evaluation, Verdict
    from mutators.brief import Brief
    from mutators.figures import limits

    found = Evaluation(
        Verdict.CORRECT,
        "",
        "p",
        "cpp",
        "0" * 64,
        kernel_ms=1.0,
        kernel_ms_ci=(0.9, 1.1),
        reference_ms=2.0,
        speedup=2.0,
        speedup_ci=(1.9, 2.1),
    )
    assert any("faster than the floor" in line for line in limits(found, Brief("p", "", "cpp", floor_ms=1.5)))
    assert any("little is left" in line for line in limits(found, Brief("p", "", "cpp", floor_ms=0.95)))

"""Children of two parents."""

from __future__ import annotations

import pytest

from mutators.crossover import Crossover, CrossoverOptions
from mutators.source import parse_source
from mutators.tunables import values_of

CPP = """#include <cstdint>

constexpr int TILE = 8;  // tune: 8 16 32

static float square(float v) { return v * v; }

extern "C" void kernel(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = square(x[i]);
}
"""
OTHER = CPP.replace("TILE = 8", "TILE = 32").replace("return v * v;", "const float r = v; return r * r;")
HELPED = CPP.replace(
    "static float square",
    "constexpr int EXTRA = 2;  // tune: 2 3\nstatic float twice(float v) { return EXTRA * v; }\nstatic float square",
).replace("return v * v;", "return twice(v) * v / EXTRA;")


def children(ticket, evaluated, first, second, count=24, **options):
    for seed in range(count):
        asked = ticket(evaluated(first), str(seed), inspirations=[evaluated(second, 1)])
        yield Crossover(CrossoverOptions(**options)).propose(asked)


def test_flags_tunables_and_functions_come_from_either_parent(ticket, evaluated, lean):
    first, second = lean(CPP), lean(OTHER, '["-O3"]')
    seen = set()
    for child in children(ticket, evaluated, first, second):
        assert child.source not in (first, second)
        kernel = parse_source(child.source)
        seen.add((kernel.flags[0], values_of(kernel.cpp)["TILE"], "r * r" in kernel.cpp))
        assert child.parent_ids == ("run-000000", "run-000001") and child.details["taken"]
    assert len(seen) == 6, "every mix of three parts but the two parents"


def test_a_function_brings_the_helpers_and_constants_it_needs(ticket, evaluated, lean):
    child = next(children(ticket, evaluated, lean(CPP), lean(HELPED), take_probability=1.0))
    cpp = parse_source(child.source).cpp
    assert cpp.count("static float twice(") == 1 and "constexpr int EXTRA = 2;" in cpp
    assert cpp.index("EXTRA = 2") < cpp.index("float twice(") < cpp.index("float square(")


def test_a_function_brings_all_overloads_of_a_helper(ticket, evaluated, lean):
    overloaded = CPP.replace(
        "static float square",
        "static float twice(float v) { return 2 * v; }\nstatic int twice(int v) { return 2 * v; }\nstatic float square",
    ).replace("return v * v;", "return twice(v) * v / 2;")
    child = next(children(ticket, evaluated, lean(CPP), lean(overloaded), take_probability=1.0))
    assert parse_source(child.source).cpp.count(" twice(") == 3


def test_a_function_brings_the_vectorisable_functions_that_it_calls(ticket, evaluated, lean):
    from mutators.cpp.vector_math import definitions

    helped = CPP.replace("static float square", definitions({"tanh"}) + "static float square")
    helped = helped.replace("return v * v;", "return kb_tanh(v) * v;")
    child = next(children(ticket, evaluated, lean(CPP), lean(helped), take_probability=1.0))
    cpp = parse_source(child.source).cpp
    for name in ("kb_float(int", "kb_bits(float", "kb_select(bool", "kb_exp(float", "kb_tanh(float"):
        assert cpp.count(name) == 1, name


@pytest.mark.parametrize("signature", ["double square(float v)", "float square(double v)"])
def test_functions_of_another_signature_are_not_exchanged(ticket, evaluated, lean, signature):
    second = lean(OTHER.replace("float square(float v)", signature))
    for child in children(ticket, evaluated, lean(CPP), second):
        assert "r * r" not in (child.source or "")


def test_equal_parents_are_refused(ticket, evaluated, lean):
    (child,) = children(ticket, evaluated, lean(CPP), lean(CPP), 1)
    assert "no second parent" in child.refusal


def test_parents_that_share_no_part_are_refused(ticket, evaluated, lean):
    (child,) = children(ticket, evaluated, lean(CPP), lean(CPP).replace("A kernel", "Another"), 1)
    assert "no mix" in child.refusal


def test_parents_that_differ_in_one_part_alone_have_only_each_other_as_children(ticket, evaluated, lean):
    (child,) = children(ticket, evaluated, lean(CPP), lean(CPP, '["-O3"]'), 1)
    assert child.refusal is not None

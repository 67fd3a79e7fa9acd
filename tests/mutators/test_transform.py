"""The transform operator: what it proposes, and in which order."""

from __future__ import annotations

from mutators.cpp.catalogue import finders
from mutators.source import parse_source
from mutators.transform import Transform, TransformOptions

CPP = """#include <cmath>
#include <cstdint>

extern "C" void kernel(const float* x, const float* y, float* out, int64_t n, int64_t m) {
    for (int64_t i = 0; i < n * m; ++i) {
        out[i] = std::tanh(x[i]) * y[i];
    }
}
"""


def test_the_first_proposal_for_a_bare_seed_is_a_strong_compound(ticket, evaluated, lean):
    for seed in range(5):
        proposal = Transform().propose(ticket(evaluated(lean(CPP)), str(seed)))
        child = parse_source(proposal.source)
        assert {"-O3", "-march=native", "-fopenmp"} <= set(child.flags)
        assert "#pragma omp parallel for simd" in child.cpp and "kb_tanh(x[i])" in child.cpp
        assert {"kind": "strong_flags", "site": "flags", "label": ""} in proposal.details["moves"]
        assert "-O3" in proposal.rationale and "cores" in proposal.rationale


def test_forty_proposals_from_one_parent_are_all_different(ticket, evaluated, lean):
    parent = evaluated(lean(CPP))
    lineage = [parent]
    for number in range(1, 40):
        proposal = Transform().propose(ticket(parent, str(number), lineage=lineage))
        assert proposal.source is not None, f"proposal {number}: {proposal.refusal}"
        lineage.append(evaluated(proposal.source, number, None))
    assert len({one.candidate.source_sha256 for one in lineage}) == 40


def test_the_same_ticket_gives_the_same_proposal(ticket, evaluated, lean):
    asked = ticket(evaluated(lean(CPP, '["-O3"]')), "5")
    assert Transform().propose(asked) == Transform().propose(asked)


def test_single_moves_alone_are_proposed_where_compounds_are_off(ticket, evaluated, lean):
    options = TransformOptions(compound_probability=0.0)
    for seed in range(6):
        proposal = Transform(options).propose(ticket(evaluated(lean(CPP, '["-O3"]')), str(seed)))
        assert len(proposal.details["moves"]) == 1


def test_fast_math_appears_only_where_the_run_allows_it(lean):
    kernel = parse_source(lean(CPP, '["-O3"]'))
    sites = [{move.site for move in finders(allowed)["flags"](kernel).moves} for allowed in (True, False)]
    assert sites[0] - sites[1] == {"-ffast-math"}


def test_rounding_is_named_in_the_rationale(ticket, evaluated, lean):
    proposal = Transform().propose(ticket(evaluated(lean(CPP))))
    assert "rounding" in proposal.rationale


def test_a_candidate_without_cpp_is_refused_with_the_reason(ticket, evaluated):
    assert "no C++ text" in Transform().propose(ticket(evaluated("import torch\n"))).refusal


def test_a_kernel_in_which_nothing_is_legal_still_gets_other_flags(ticket, evaluated, lean):
    serial = CPP.replace("out[i] = std::tanh(x[i]) * y[i];", "out[i + 1] = out[i] + x[i];")
    proposal = Transform().propose(ticket(evaluated(lean(serial))))
    assert parse_source(proposal.source).flags != ("-O2",)
    assert "omp" not in proposal.source

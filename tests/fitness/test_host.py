"""The host suite: hostile candidates, while they run and while they are built, reach nothing and leave nothing."""

from __future__ import annotations

import pytest

from experiments.hostile.cases import BY_NAME, CASES, MODES
from experiments.hostile.host import Host
from fitness.workbench import Workbench

QUICK = (
    ("whatever_is_refused", "run"),
    ("whatever_is_refused", "build"),
    ("rewrite_itself", "build"),
    ("install_package", "build"),
    ("fork_thousand", "build"),
    ("daemonise", "build"),
    ("fill_memory_fast", "run"),
    ("fill_shared_memory", "run"),
    ("fill_thread_stacks", "run"),
    ("leak_per_call", "run"),
    ("fill_disk_many_files", "run"),
    ("fill_inodes", "run"),
    ("bury_files", "run"),
    ("bury_files", "build"),
    ("flood_stdout", "run"),
    ("close_descriptors", "run"),
    ("write_garbage", "run"),
)
EVERYTHING = [(case.strike, mode) for case in CASES for mode in MODES]


@pytest.fixture(scope="module")
def host(workbench):
    with Host(workbench) as running:
        yield running


@pytest.mark.parametrize(("strike", "mode"), QUICK)
def test_a_strike_is_refused_or_contained_and_the_next_candidate_judged_as_ever(host, strike, mode):
    outcome = host.strike(BY_NAME[strike], mode)
    assert not outcome.findings, outcome


@pytest.mark.slow
@pytest.mark.parametrize(("strike", "mode"), sorted(set(EVERYTHING) - set(QUICK)))
def test_every_other_strike_is_too(host, strike, mode):
    outcome = host.strike(BY_NAME[strike], mode)
    assert not outcome.findings, outcome


@pytest.mark.slow
def test_without_the_fence_the_suite_finds_what_a_candidate_reads():
    with Workbench(sandbox="none") as workbench, Host(workbench) as host:
        findings = " ".join(host.strike(BY_NAME["read_secrets"], "run").findings)
    assert "file" in findings and "home" in findings


@pytest.fixture(scope="module")
def gpu_host():
    with Workbench(device="cuda:0") as workbench, Host(workbench, "cuda:0", "cuda") as running:
        yield running


@pytest.mark.gpu
@pytest.mark.parametrize(("strike", "mode"), EVERYTHING)
def test_on_a_gpu_a_strike_is_refused_or_contained_too(gpu_host, strike, mode):
    outcome = gpu_host.strike(BY_NAME[strike], mode)
    assert not outcome.findings, outcome

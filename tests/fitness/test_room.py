"""What a problem needs of a card is known before anything large is made."""

from __future__ import annotations

import pytest
import torch

from fitness import room as host_room
from fitness.evaluation import Job, JudgeError
from fitness.gpu import room
from fitness.judge import Judge
from fitness.wire import Layout

GIB = 1 << 30


@pytest.fixture
def a_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """40 of 48 GiB are free."""
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (40 * GIB, 48 * GIB))


@pytest.mark.parametrize("sizes", [(9, 0, 0), (0, 5, 0), (0, 0, 7)], ids=["inputs", "outputs", "weights"])
def test_what_does_not_fit_is_refused_with_the_figures(a_card: None, sizes: tuple[int, int, int]) -> None:
    job = Job("wide", "", "", "cuda", "cuda:0")
    with pytest.raises(
        JudgeError, match=r"problem wide needs about 4\d\.\d GiB on the card, 40\.0 of 48\.0 GiB are free"
    ):
        room.check(job, *(size * GIB for size in sizes))
    room.check(job, *(max(0, size - 1) * GIB for size in sizes))


@pytest.mark.parametrize("which", [0, 1, 2], ids=["inputs", "outputs", "weights"])
def test_what_does_not_fit_into_the_machines_memory_is_refused_before_it_is_drawn(monkeypatch, which):
    layouts: list[list[Layout]] = [[], [], []]
    layouts[which] = [Layout((1 << 26,), (1,), "float32")]
    needed = host_room.least_bytes(*layouts)
    job = Job("wide", "", "")
    monkeypatch.setattr(host_room, "memory_left_bytes", lambda: needed)
    host_room.check(job, *layouts)
    monkeypatch.setattr(host_room, "memory_left_bytes", lambda: needed - (1 << 28))
    with pytest.raises(JudgeError, match=r"problem wide needs \d+\.\d GiB of memory or more on the CPU, of which \d"):
        host_room.check(job, *layouts)


PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x * {factor}
def get_inputs(): return [torch.rand(64)]
def get_init_inputs(): return []
"""


def test_problems_that_are_kept_ready_make_room_for_the_next(monkeypatch):
    judge = Judge("cpu", "none", lambda _: None)
    jobs = [Job(f"times {factor}", PROBLEM.format(factor=factor), "") for factor in (2, 3, 4)]
    try:
        judge._session(jobs[0])
        left = host_room.memory_left_bytes
        monkeypatch.setattr(host_room, "memory_left_bytes", lambda: 0 if judge._sessions else left())
        assert judge._session(jobs[1]).facts and len(judge._sessions) == 1
        monkeypatch.setattr(host_room, "memory_left_bytes", lambda: 0)
        with pytest.raises(JudgeError, match="times 4 needs"):
            judge._session(jobs[2])
    finally:
        judge.close()


def test_only_problems_with_floating_inputs_have_draws_of_all_families():
    whole, floating = [Layout((1 << 20,), (1,), "int32")], [Layout((1 << 20,), (1,), "float32")]
    assert host_room.least_bytes(whole, [], []) < host_room.least_bytes(floating, [], [])

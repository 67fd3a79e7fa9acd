"""What a problem needs of a card is known before anything large is made."""

from __future__ import annotations

import pytest
import torch

from fitness.evaluation import Job, JudgeError
from fitness.gpu import room

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

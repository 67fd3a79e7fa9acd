"""The health probe in real, fenced children, and what happens to a device that fails it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from fitness import health
from fitness.children import Child, Zygote
from fitness.evaluation import JudgeError
from fitness.session import private_policy

PROBLEM = "def get_init_inputs():\n    return []\n"
PROBE = """
from fitness import health
class ModelNew:
    def __init__(self):
        {body}
"""
SOUND = "print(health.known_answers('cpu'))"
WRONG = "import torch; torch.Tensor.sum = lambda self: torch.tensor(7); print(health.known_answers('cpu'))"
HANGING = "import time; time.sleep(60)"
DYING = "import os; os.abort()"
BOASTING = "print('healthy'); raise RuntimeError('CUDA error: an illegal memory access was encountered')"


@pytest.fixture(scope="module")
def zygote():
    running = Zygote(1)
    yield running
    running.close()


@pytest.fixture
def child(zygote, tmp_path):
    """child(body) -> what starts a fenced child that runs the body; it counts the starts."""

    def starter(*bodies: str):
        remaining = list(bodies)

        def start() -> Child:
            policy = private_policy((str(tmp_path),))
            problem, candidate = tmp_path / "problem.py", tmp_path / "candidate.py"
            problem.write_text(PROBLEM)
            candidate.write_text(PROBE.format(body=remaining.pop(0) if len(remaining) > 1 else remaining[0]))
            for path in (tmp_path, *tmp_path.parents[:2]):
                path.chmod(0o755)
            spec = {"problem_path": str(problem), "source_path": str(candidate), "products_dir": policy.private_dir}
            spec |= {"backend": "cpp", "arch": "", "device": "cpu"}
            with open(os.devnull, "wb") as begun:
                return zygote.spawn("build", spec, policy, [begun.fileno()])

        return start

    return starter


@pytest.fixture(autouse=True)
def own_state(tmp_path, monkeypatch):
    """A state folder of this test's own, so that it puts nothing aside for others."""
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))


def test_a_sound_device_is_healthy(zygote):
    assert health.is_healthy(health.starter(zygote, "cpu", fenced=True)) == (True, "")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (WRONG, "a sum of 2**20 squares on cpu: 1 of 1 elements are wrong"),
        (DYING, "was killed by signal 6"),
        (BOASTING, "illegal memory access"),
    ],
)
def test_a_wrong_sum_a_crash_and_an_error_are_found_and_told(child, body, expected):
    is_right, reason = health.is_healthy(child(body))
    assert not is_right
    assert expected in reason


def test_a_device_that_hangs_is_not_waited_for(child):
    is_right, reason = health.is_healthy(child(HANGING), deadline_s=0.5)
    assert (is_right, reason) == (False, "the known kernel gave no answer within 0.5 s")


def test_one_failure_is_forgiven(child):
    health.check("cpu", child(DYING, SOUND), pause_s=0)
    assert health.quarantined("cpu") == ""


def test_two_failures_put_the_device_aside_and_the_error_says_how_to_lift_it(child):
    with pytest.raises(JudgeError, match=r"cpu is put aside since .*signal 6.*kb-evolve doctor --release cpu"):
        health.check("cpu", child(DYING), pause_s=0)
    with pytest.raises(JudgeError, match="Nothing is lost"):
        health.refuse("cpu")
    assert health.quarantined("cuda:5") == ""
    assert health.release("cpu")
    health.refuse("cpu")
    assert not health.release("cpu")


def test_a_note_that_cannot_be_read_still_holds_and_can_be_released():
    health.put_aside("cuda:5", "fell off the bus")
    (note,) = Path(tempfile.gettempdir()).rglob("put_aside/*.json")
    note.write_text("{")
    assert "cannot be read" in health.quarantined("cuda:5")
    assert health.release("cuda:5")
    assert health.quarantined("cuda:5") == ""


def test_a_note_follows_the_uuid_and_not_the_number(monkeypatch):
    uuids = {0: "GPU-a", 1: "GPU-b"}
    monkeypatch.setattr(health.nvml, "device_uuid", lambda index: uuids[index])
    health.put_aside("cuda:0", "uncorrectable memory error")
    uuids.update({0: "GPU-b", 1: "GPU-a"})  # the next process sees them the other way round
    assert health.quarantined("cuda:0") == ""
    assert "uncorrectable" in health.quarantined("cuda:1")


def test_every_bit_of_the_memory_pattern_is_both_values_somewhere():
    *_, (_, _, pattern) = health._known_work("cpu")
    words = pattern[:4096].tolist()
    for bit in range(32):
        assert len({(word >> bit) & 1 for word in words}) == 2
    assert len(pattern) == 4 << 20


@pytest.mark.gpu
def test_a_real_gpu_is_healthy():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as apart:  # ours would disturb judges
        assert apart.submit(health.known_answers, "cuda:0").result() == health.HEALTHY

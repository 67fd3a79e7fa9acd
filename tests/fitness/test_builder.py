"""Builds are kept by content: once compiled, once failed, never twice; what is damaged is built again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from fitness import builds, sandbox
from fitness.builder import Builder
from fitness.builds import Pool
from fitness.children import Zygote
from fitness.evaluation import Job, JudgeError, Verdict

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x + 1
def get_inputs(): return [torch.rand(8)]
def get_init_inputs(): return []
"""
CANDIDATE = """
import ctypes, torch
from torch.utils.cpp_extension import load_inline
SOURCE = 'extern "C" void bump(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = x[i] + 1; }'
lib = ctypes.CDLL(load_inline("bump", SOURCE, functions=None, no_implicit_headers=True, is_python_module=False))
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.bump(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
"""


def job(source=CANDIDATE, **changed):
    return Job(problem="bump", problem_source=PROBLEM, source=source, **changed)


@pytest.fixture(scope="module")
def zygote():
    started = Zygote(1)
    yield started
    started.close()


@pytest.fixture
def state(tmp_path, monkeypatch):
    """An empty state folder that candidates' users can reach."""
    folder = Path(tempfile.mkdtemp(prefix="kb-test-"))
    folder.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def builder(state, zygote):
    return Builder(zygote, fenced=True)


def test_a_source_is_built_once_and_then_found(builder):
    first, second = builder.build(job()), builder.build(job())
    assert first.failure is None and first.routes == ("lean",) and first.features["binary_bytes"] > 0
    assert first.compile_s > 0 and second.compile_s == 0.0
    assert second.folder == first.folder and second.features == first.features


def test_a_compile_error_is_kept_with_its_verdict_reason_and_log(builder):
    broken = job(CANDIDATE.replace("x[i] + 1", "x[i] + missing"))
    first, second = builder.build(broken).failure, builder.build(broken).failure
    assert first.verdict is Verdict.COMPILE_ERROR and "'missing' was not declared" in first.reason
    assert (second.verdict, second.reason, second.log) == (first.verdict, first.reason, first.log)
    assert first.compile_s > 0 and second.compile_s == 0.0


def test_a_failure_that_may_be_the_machines_is_tried_again(builder):
    ended = job("raise SystemExit(7)")
    first, second = builder.build(ended).failure, builder.build(ended).failure
    assert first.verdict is Verdict.LOAD_ERROR and "exited with code 7" in first.reason
    assert second.compile_s > 0


@pytest.mark.parametrize(
    "source, reason",
    [
        ("import torch\nclass ModelNew(torch.nn.Module:\n    pass", "at its line 2: SyntaxError"),
        ("def helper():\n    return missing\n\nhelper()", "at its line 2: NameError: name 'missing'"),
        ("raise ValueError('x' * 1_000)", "at its line 1: ValueError: xxx"),
    ],
)
def test_a_module_that_raises_says_where_in_few_words(builder, source, reason):
    failure = builder.build(job(source)).failure
    assert failure.verdict is Verdict.LOAD_ERROR and "ended with an uncaught exception" in failure.reason
    assert reason in failure.reason and len(failure.reason) < 600


def test_a_module_that_raises_after_its_build_says_by_which_route_that_went(builder):
    failure = builder.build(job(CANDIDATE + "raise ValueError")).failure
    assert failure.verdict is Verdict.LOAD_ERROR and failure.features == {"build_routes": ["lean"]}


def test_a_failed_build_may_leave_folders_too_deep_to_be_named(builder, state):
    work = state / "work"
    work.mkdir()
    here = os.open(".", os.O_DIRECTORY)
    os.chdir(work)
    for _ in range(1200):  # a path of 6,000 characters; the system takes 4,095
        os.mkdir("deep")
        os.chdir("deep")
    os.fchdir(here)
    os.close(here)
    builder._require_disk(work)
    assert not work.exists(), "what cannot be counted may have filled the disk"


def test_a_report_that_a_candidate_forged_harms_nobody(builder):
    forged = """
from pathlib import Path
folder = load_inline.args[0].folder / "forged"
folder.mkdir()
(folder / "build.json").write_text("[" * 8_000)
(folder.parent / "features.json").write_text("[" * 8_000)
"""
    found = builder.build(job(CANDIDATE + forged))
    assert found.failure is None and found.routes == ("lean",)


@pytest.mark.parametrize("damage", ["truncated", "missing", "seal"])
def test_a_damaged_entry_is_built_again(builder, damage):
    folder = Path(builder.build(job()).folder)
    (library,) = folder.glob("products/*/bump.so")
    if damage == "truncated":
        library.write_bytes(library.read_bytes()[:100])
    elif damage == "missing":
        library.unlink()
    else:
        (folder / builds.SEAL).write_text("{")
    again = builder.build(job())
    assert again.compile_s > 0 and again.failure is None
    assert next(Path(again.folder).glob("products/*/bump.so")).stat().st_size > 1000


def test_backend_and_compiler_belong_to_the_key_and_the_arch_only_where_it_matters(builder, monkeypatch):
    keys = {builder._key(job(backend=backend)) for backend in ("cpp", "cuda", "triton")}
    assert len(keys) == 3
    assert builder._key(job(arch="sm_80")) == builder._key(job())
    assert builder._key(job(backend="cuda", arch="sm_90")) == builder._key(job(backend="cuda"))
    assert builder._key(job(backend="cuda", arch="sm_80")) != builder._key(job(backend="cuda"))
    before = builder._key(job())
    monkeypatch.setenv("CXX", "clang++")
    assert builder._key(job()) != before


def test_leavings_of_killed_builders_are_swept_and_those_of_living_ones_stay(state, zygote):
    Builder(zygote, fenced=True)
    root = sandbox.state_dir() / "builds"
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead, alive = root / f"abc.{int(gone.stdout)}.0.tmp", root / f"abc.{os.getpid()}.0.tmp"
    for folder in (dead, alive):
        (folder / "products").mkdir(parents=True)
    Builder(zygote, fenced=True)
    assert not dead.exists() and alive.exists()


LEAVINGS = {
    "a failure": """open("failure.json", "w").write('{"verdict": "verified", "reason": "", "log": ""}')""",
    "a failure that is none": """open("failure.json", "w").write('{"verdict": "correct"}')""",
    "a folder for the seal": "os.mkdir('complete')",
    "another source": "os.remove('candidate.py'); os.mkdir('candidate.py')",
}


@pytest.mark.parametrize("leaving", LEAVINGS.values(), ids=LEAVINGS)
def test_of_what_a_build_leaves_beside_its_products_nothing_is_kept(builder, leaving):
    source = f"import os\n{leaving}\n{CANDIDATE}"
    found = builder.build(Job("p", PROBLEM, source))
    assert found.failure is None, found.failure
    folder = Path(found.folder)
    assert sorted(path.name for path in folder.iterdir()) == ["candidate.py", "complete", "problem.py", "products"]
    assert (folder / "candidate.py").read_text() == source and builds.is_whole(folder)


def test_products_that_are_no_folder_are_a_load_error(builder):
    late = "import os, shutil\n"
    replace = "shutil.rmtree('products'); open('products', 'w').write('x'); os._exit(0)\n"
    found = builder.build(Job("p", PROBLEM, late + replace))
    assert found.failure is not None and found.failure.verdict is Verdict.LOAD_ERROR
    assert "replaced the folder of its products" in found.failure.reason


def test_holes_in_files_count_against_the_disk(builder):
    holes = "for n in range(20):\n    with open(f'hole{n}', 'wb') as f: f.truncate(500 << 20)\n"
    found = builder.build(Job("p", PROBLEM, holes + CANDIDATE))
    assert found.failure is not None and "to disk, allowed are" in found.failure.reason


def a_build(root: Path, name: str, idle_s: float) -> Path:
    folder = root / name
    folder.mkdir()
    (folder / "product").write_bytes(b"x" * (1 << 20))
    builds.seal(folder)
    os.utime(folder, (time.time() - idle_s, time.time() - idle_s))
    return folder


def test_of_too_many_builds_those_used_longest_ago_go(tmp_path):
    old, older, new = (a_build(tmp_path, name, idle_s) for name, idle_s in (("a", 9e3), ("b", 9e4), ("c", 8e3)))
    builds.trim(tmp_path, most_bytes=5 << 19)
    assert (old.exists(), older.exists(), new.exists()) == (True, False, True)
    assert builds.is_whole(old) and builds.is_whole(new)


def test_a_build_that_may_be_in_use_stays_however_large_all_are(tmp_path):
    folders = [a_build(tmp_path, name, idle_s) for name, idle_s in (("a", 10), ("b", builds.IN_USE_S - 60))]
    builds.trim(tmp_path, most_bytes=0)
    assert all(builds.is_whole(folder) for folder in folders)


def test_builds_are_trimmed_once_a_day_and_after_so_many_new_ones(state, zygote, monkeypatch):
    trimmed: list[Path] = []
    trim = builds.trim
    monkeypatch.setattr(builds, "trim", lambda root: (trimmed.append(root), trim(root)))
    monkeypatch.setattr(builds, "TRIM_EVERY", 2)
    first, _ = Builder(zygote, fenced=True), Builder(zygote, fenced=True)
    assert len(trimmed) == 1
    for number in range(3):
        first.build(Job("p", PROBLEM, f"{CANDIDATE}# {number}"))
    assert len(trimmed) == 2


def test_two_processes_that_build_the_same_source_compile_it_once(state):
    script = (
        "import sys; from fitness.builder import Builder; from fitness.children import Zygote;"
        "from fitness.evaluation import Job; import json; zygote = Zygote(1);"
        "artifact = Builder(zygote, fenced=True).build(Job(**json.loads(sys.argv[1])));"
        "print(json.dumps([artifact.folder, artifact.compile_s])); zygote.close()"
    )
    fields = json.dumps({"problem": "bump", "problem_source": PROBLEM, "source": CANDIDATE})
    environment = {**os.environ, "TMPDIR": str(state), "PYTHONPATH": str(sandbox.ROOT)}
    command = [sys.executable, "-c", script, fields]
    running = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    found = [json.loads(process.communicate(timeout=120)[0]) for process in running]
    assert found[0][0] == found[1][0]
    assert sorted(compile_s > 0 for _, compile_s in found) == [False, True]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to mount a small disk")
def test_a_full_disk_is_the_machines_fault(state, zygote):
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0711", "tmpfs", str(state)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this machine allows no mounts")
    try:
        builder = Builder(zygote, fenced=True)
        with pytest.raises(JudgeError, match=r"the disk under .* (has only|is full)"):
            builder.build(job(CANDIDATE + "#" * (2 << 20)))
    finally:
        subprocess.run(["umount", "-l", str(state)], check=True)


@pytest.mark.parametrize("stands_still", [True, False])
def test_builds_stand_still_only_where_they_share_the_cpus(state, zygote, stands_still):
    builder, finished = Builder(zygote, fenced=True, stands_still=stands_still), threading.Event()
    thread = threading.Thread(target=lambda: (builder.build(job("raise SystemExit(1)")), finished.set()))
    with builder.standing_still():
        thread.start()
        assert finished.wait(1.5 if stands_still else 60) is not stands_still
    assert finished.wait(60)
    thread.join()


def test_a_pool_keeps_to_its_cores_and_its_memory_and_never_starves():
    pool = Pool(cores=3, memory_bytes=4)
    running, most = [0, 0], [0, 0]
    guard = threading.Lock()

    def work(size):
        with pool.place(size):
            with guard:
                running[0] += 1
                running[1] += size
                most[0], most[1] = max(most[0], running[0]), max(most[1], running[1])
            time.sleep(0.02)
            with guard:
                running[0] -= 1
                running[1] -= size

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 3, 1, 1, 1, 3, 1, 4, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert most[0] <= 3 and most[1] <= 4 and most[0] > 1


def test_a_build_larger_than_the_whole_pool_still_gets_a_place():
    with Pool(cores=1, memory_bytes=1).place(5):
        pass

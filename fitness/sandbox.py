"""The fence around candidate code: what a forked child puts around itself before it runs anything.

Levels (judge.md): S3 = S2 and a cgroup; S2 = file system, network, signals and processes fenced;
S1 = own user and resource limits; S0 = nothing. Which one holds is measured by attack (fitness/probe.py).
"""

from __future__ import annotations

import atexit
import ctypes
import glob
import os
import resource
import shutil
import signal
import site
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from fitness import landlock, seccomp
from fitness.evaluation import JudgeError

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds our packages."""

LEVELS = ("S0", "S1", "S2", "S3")
UNCAUGHT = os.EX_SOFTWARE
"""Exit code of a child that an exception ended."""
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS, _PR_CAPBSET_DROP = 1, 4, 38, 24
_PR_SET_TIMERSLACK, _PR_SET_CHILD_SUBREAPER = 29, 36
_FIRST_UID = 0x6B620000
"""User numbers for candidates when we run as root; far above any that a system hands out."""
_SYSTEM_READ = (
    "/usr",
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/alternatives",
    "/etc/localtime",
    "/proc",
    "/sys/devices/system",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)
_GPU_READ = ("/sys", "/etc/nvidia", "/etc/OpenCL", "/run/nvidia-persistenced", "/dev/nvidia-caps")
_KEPT_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "OPENBLAS_CORETYPE", "CXX", "CC")
_KEPT_FOR_CUDA = ("CUDA_HOME", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDAHOSTCXX", "LIBRARY_PATH")

_OPENMP = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}
"""OpenMP's workers wait for the next loop awake for about a millisecond instead of tens, so that they sleep soon after
a call; within a call they stay awake as usual."""
_BOUND = {"OMP_PROC_BIND": "true"}
"""OpenMP's workers stay on CPUs of their own. It also binds the main thread, and all that it starts, to the first CPU:
for timing on the CPU, where each CPU has its worker, and nowhere else."""

_MALLOC = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}
"""glibc keeps freed memory instead of giving it back after each call. With its defaults eager PyTorch pays page
faults on its temporaries in some calls and not in others (layernorm of 6 MB: 2.7 and 5.9 ms in turn), which flatters
kernels."""

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True)
class Policy:
    """What one child may do."""

    private_dir: str
    """The only folder that it may write; its HOME, TMPDIR and working directory."""
    read: tuple[str, ...] = ()
    """Further folders that it may read."""
    processes: bool = False
    """Whether it may start processes and programs (builds do, runs do not)."""
    uid: int | None = None
    """User to become; needs root."""
    file_bytes: int = 64 << 20
    """Largest file that it may write, its captured output included."""
    fenced: bool = True
    """False: resource limits only (`--sandbox none`)."""
    gpu: bool = False
    """Whether it may use NVIDIA GPUs."""


def confine(policy: Policy) -> None:
    """Puts the calling process behind the fence; there is no way back.

    Raises OSError or JudgeError when a part of the fence cannot be put up: the caller must then exit.
    """
    os.chdir(policy.private_dir)
    _limit(policy)
    if not policy.fenced:
        die_with_parent()
        return
    _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    read = (*_SYSTEM_READ, *python_dirs(), *_tool_dirs(), *policy.read, *(_GPU_READ if policy.gpu else ()))
    write = (policy.private_dir, "/dev/null", *(_gpu_files() if policy.gpu else ()))
    version = landlock.restrict(read, write)
    if policy.uid is not None:
        os.setgroups([])
        os.setgid(policy.uid)
        os.setuid(policy.uid)
    elif os.geteuid() == 0:
        _drop_capabilities()
    die_with_parent()
    seccomp.restrict(
        processes=policy.processes,
        own_signals_only=not landlock.scopes_signals(version),
        unix_sockets=policy.gpu,
    )


def _gpu_files() -> list[str]:
    """What CUDA writes to: its devices, and the names of its own threads."""
    devices = [path for path in glob.glob("/dev/nvidia*") if not os.path.isdir(path)]
    return [*devices, f"/proc/{os.getpid()}/task"]


def python_dirs() -> tuple[str, ...]:
    """The folders that Python, torch and our own packages are read from."""
    dirs = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(ROOT / "fitness"), str(ROOT / "problems")}
    dirs.update(site.getsitepackages())
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        dirs.add(str(Path(torch.__file__).parent.parent))
    return tuple(sorted(dirs))


def _tool_dirs() -> set[str]:
    """Where compilers lie that are not installed in the system's own folders."""
    named = [word for name in ("CC", "CXX", "CUDAHOSTCXX") for word in os.environ.get(name, "").split()[:1]]
    found = [shutil.which(tool) for tool in (*named, "gcc", "g++", "nvcc")]
    roots = {str(Path(path).resolve().parent.parent) for path in found if path}
    return {root for root in roots if not root.startswith("/usr") and root != "/"}


def die_with_parent() -> None:
    """The kernel kills the calling process when its parent dies. Must follow any change of user."""
    parent = os.getppid()
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Processes below the calling one whose parent ends become its own children: nobody leaves the tree."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def sleep_precisely() -> None:
    """Short sleeps of the calling thread end on time, not up to 50 us later (timer slack, prctl(2))."""
    _libc.prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def hide_from_others() -> None:
    """Other processes of the same user can no longer read this one's memory or environment."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def clean_environment(private_dir: str, threads: int, *, bind_threads: bool = False) -> dict[str, str]:
    """The whole environment of a child: no keys, no settings of the user's, one place to write."""
    kept = {name: os.environ[name] for name in (*_KEPT_ENVIRONMENT, *_KEPT_FOR_CUDA) if name in os.environ}
    return {
        "PATH": os.defpath,
        **kept,
        "HOME": private_dir,
        "USER": "kb_evolve",  # libraries ask for a name, and the child's user has none in the system's list
        "TMPDIR": private_dir,
        "PYTHONPATH": str(ROOT),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "CUDA_CACHE_PATH": str(Path(private_dir, "cuda-cache")),
        "TORCHINDUCTOR_CACHE_DIR": str(Path(private_dir, "inductor")),
        "TRITON_CACHE_DIR": str(Path(private_dir, "triton")),
        **_OPENMP,
        **(_BOUND if bind_threads else {}),
        **_MALLOC,
    }


def state_dir() -> Path:
    """Our folder for builds and locks, one per user, which nobody else can write.

    It lies under the system's temporary folder, since a candidate's own user must be able to reach
    its build. Raises JudgeError when somebody else owns a folder of that name.
    """
    folder = Path(tempfile.gettempdir()) / f"kb_evolve-{os.getuid()}"
    folder.mkdir(mode=0o711, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid():
        raise JudgeError(f"{folder} must be a folder of user {os.getuid()}, but is not; remove it or set TMPDIR")
    folder.chmod(0o711)
    return folder


def live_dir() -> Path:
    """This process's part of the state folder, for what lasts no longer than it does.

    The first call removes the parts of processes that are gone, such as killed ones.
    """
    folder = state_dir() / f"live-{os.getpid()}"
    if not folder.exists():
        for other in state_dir().glob("live-*"):
            if not Path("/proc", other.name.removeprefix("live-")).exists():
                shutil.rmtree(other, ignore_errors=True)
        folder.mkdir(mode=0o711)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def candidate_uid(slot: int) -> int | None:
    """A user number for one candidate, where we are root and that user can read Python and torch."""
    if os.geteuid() != 0:
        return None
    return _FIRST_UID + slot % 0x8000 if _others_can_read() else None


def _others_can_read() -> bool:
    folders = [Path(folder) for folder in python_dirs() if os.path.isdir(folder)]
    chain = {part for folder in folders for part in (folder, *folder.parents)}
    return all(part.stat().st_mode & 0o001 for part in chain)


def _limit(policy: Policy) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (policy.file_bytes, policy.file_bytes))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")  # when the machine's memory runs out the kernel takes candidates first
    if policy.uid is not None:  # the count is per user, and only here is the user the candidate's own
        tasks = 256 + 4 * (os.cpu_count() or 1)
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))


def _drop_capabilities() -> None:
    """Root without its powers: used where the candidate's user could not read Python's folders."""
    for capability in range(64):
        _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    empty = (ctypes.c_uint32 * 6)()
    number = {"x86_64": 126, "aarch64": 91}[os.uname().machine]
    if _libc.syscall(number, header, empty) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")

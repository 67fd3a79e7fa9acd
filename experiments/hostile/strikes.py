"""What a hostile candidate tries on its host. Read as text and sent to the judge; never imported by us.

Each strike returns the names of what succeeded. One that fills something stops by itself at a cap of SPEC and
then says so: nobody had stopped it.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import signal
import socket
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)
SPEC = {}
held = []


def breaches(**attempts):
    """The names of the attempts that raise nothing and do not return False."""
    found = []
    for name, attempt in attempts.items():
        try:
            if attempt() is not False:
                found.append(name)
        except (OSError, ValueError, ImportError, MemoryError, subprocess.SubprocessError):
            pass
    return found


def checked(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), "refused")
    return result


def read_secrets():
    def read(path):
        return lambda: open(path, "rb").read(1)

    others = {f"{part}_{pid}": read(f"/proc/{pid}/{part}") for pid in SPEC["others"] for part in ("environ", "mem")}
    return breaches(
        file=read(SPEC["canary"]),
        variable=lambda: any(SPEC["variable"] in value for value in os.environ.values()),
        builds=lambda: bool(os.listdir(SPEC["builds"])),
        home=lambda: bool(os.listdir(SPEC["home"])),
        descriptors=lambda: os.readlink(f"/proc/{SPEC['others'][0]}/fd/0"),
        link=lambda: os.link(SPEC["canary"], "stolen") or open("stolen").read(),
        handle=lambda: open(f"/proc/{SPEC['others'][0]}/root{SPEC['canary']}").read(),
        **others,
    )


def write_outside():
    def write(folder):
        def act():
            path = os.path.join(folder, f"kb-hostile-{os.getpid()}")
            with open(path, "w") as file:
                file.write("x")

        return act

    import torch

    folders = [SPEC["home"], SPEC["builds"], os.path.dirname(SPEC["canary"]), os.path.dirname(torch.__file__)]
    folders += ["/tmp", "/var/tmp", "/dev/shm", "/etc", sys.prefix, *(path for path in sys.path if path)]
    return breaches(
        **{folder: write(folder) for folder in folders},
        overwrite=lambda: open(SPEC["canary"], "r+").write("x"),
        empty=lambda: os.truncate(SPEC["canary"], 0),
        empty_by_reading=lambda: os.open(SPEC["canary"], os.O_RDONLY | os.O_TRUNC),
        rename=lambda: os.rename(SPEC["canary"], "stolen"),
        remove=lambda: os.unlink(SPEC["canary"]),
        folder=lambda: os.mkdir(os.path.join(SPEC["home"], "kb-hostile")),
        link=lambda: os.symlink("/etc/passwd", os.path.join(SPEC["home"], "kb-hostile")),
        device=lambda: os.mknod("disk", 0o60600, os.makedev(254, 0)) or open("disk", "rb").read(1),
    )


def change_metadata():
    """Faked successes do not count: the host looks at the file afterwards."""
    breaches(
        mode=lambda: os.chmod(SPEC["canary"], 0o777),
        owner=lambda: os.chown(SPEC["canary"], os.getuid(), -1),
        times=lambda: os.utime(SPEC["canary"], (1, 1)),
        attribute=lambda: os.setxattr(SPEC["canary"], "user.kb", b"x"),
    )
    return []


def open_sockets():
    def reach(family, kind, address):
        def act():
            with socket.socket(family, kind) as one:
                one.settimeout(1)
                one.connect(address)
                one.send(b"kb-hostile")

        return act

    def from_a_pair(kind, address):
        def act():
            one, _ = socket.socketpair(socket.AF_UNIX, kind)
            one.sendto(b"kb-hostile", address)
            if kind != socket.SOCK_DGRAM:
                return False  # a pair's stream ignores the address

        return act

    here, path, hidden = ("127.0.0.1", SPEC["port"]), SPEC["socket_path"], "\0" + SPEC["abstract"]
    return breaches(
        tcp=reach(socket.AF_INET, socket.SOCK_STREAM, here),
        udp=reach(socket.AF_INET, socket.SOCK_DGRAM, here),
        abstract=reach(socket.AF_UNIX, socket.SOCK_STREAM, hidden),
        packets=reach(socket.AF_UNIX, socket.SOCK_SEQPACKET, hidden),
        path=reach(socket.AF_UNIX, socket.SOCK_STREAM, path),
        datagram=reach(socket.AF_UNIX, socket.SOCK_DGRAM, path + ".dgram"),
        from_a_pair=from_a_pair(socket.SOCK_DGRAM, path + ".dgram"),
        from_a_stream=from_a_pair(socket.SOCK_STREAM, path + ".dgram"),
        netlink=lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        packet=lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW),
        vsock=lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM),
    )


def fork_thousand():
    """One breach once a thousand copies were alive at the same time."""
    for number in range(1000):
        try:
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
        except OSError:
            time.sleep(0.3)  # whoever counts has time to see them
            return []
        if number == 999:
            return ["a thousand processes"]
    return []


def daemonise():
    try:
        if os.fork():
            return []
    except PermissionError:
        return []
    try:
        os.setsid()
        os.closerange(0, 512)
        if os.fork():
            os._exit(0)
        libc.prctl(1, 0, 0, 0, 0)
        for number in range(1, 65):
            libc.signal(number, 1)
        time.sleep(600)
    finally:
        os._exit(0)


def fill_memory_fast():
    def fill(results):
        while not results:
            block = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            block.madvise(mmap.MADV_HUGEPAGE)
            held.append(block)
            ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(block)), 1, len(block))
            if len(held) << 26 > SPEC["memory_cap"]:
                results.append("memory")

    results = []
    workers = [threading.Thread(target=fill, args=(results,), daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


def fill_memory_slowly():
    while len(held) << 25 < SPEC["memory_cap"]:
        held.append(bytearray(b"x") * (32 << 20))
        time.sleep(0.06)
    return ["memory"]


def fill_shared_memory():
    """Gives back its page tables after each block, so that nothing of it counts as resident."""
    while len(held) << 26 < SPEC["memory_cap"]:
        block = mmap.mmap(-1, 64 << 20, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)
        block.write(b"x" * len(block))
        block.madvise(mmap.MADV_DONTNEED)
        held.append(block)
    return ["shared memory"]


def fill_memory_files():
    """Files in memory that no descriptor shows: each stays mapped, unread."""
    while len(held) << 25 < SPEC["memory_cap"]:
        one = os.memfd_create("kb")
        os.write(one, b"x" * (32 << 20))
        held.append(mmap.mmap(one, 0, prot=mmap.PROT_READ))
        os.close(one)
    return ["memory files"]


def fill_thread_stacks():
    def deep():
        ctypes.memset(ctypes.create_string_buffer(1), 1, 1)
        time.sleep(600)

    threading.stack_size(32 << 20)
    for _ in range(SPEC["thread_cap"]):
        threading.Thread(target=deep, daemon=True).start()
    return ["threads"]


def fill_disk_one_file():
    with open("big", "wb") as file:
        for _ in range(SPEC["disk_cap"] >> 24):
            file.write(b"x" * (1 << 24))
    return ["one file"]


def fill_disk_many_files():
    for number in range(SPEC["disk_cap"] >> 24):
        with open(f"part-{number}", "wb") as file:
            file.write(b"x" * (1 << 24))
    return ["many files"]


def fill_disk_deleted_files():
    """Files that no folder and no descriptor shows."""
    for _ in range(SPEC["disk_cap"] >> 24):
        with open("gone", "wb+") as file:
            file.write(b"x" * (1 << 24))
            file.flush()
            held.append(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
        os.unlink("gone")
    return ["deleted files"]


def fill_inodes():
    for number in range(SPEC["file_cap"]):
        if number % 1000 == 0:
            os.mkdir(f"f{number}")
        os.mknod(f"f{number // 1000 * 1000}/{number}")
    return ["inodes"]


def kill_everything():
    def by_folder(pid):
        return lambda: checked(libc.syscall(424, os.open(f"/proc/{pid}", os.O_DIRECTORY), signal.SIGKILL, None, 0))

    def by_descriptor(pid):
        def act():
            one, other = socket.socketpair()
            fcntl.fcntl(one, 10, signal.SIGKILL)
            fcntl.fcntl(one, fcntl.F_SETOWN, pid)
            fcntl.fcntl(one, fcntl.F_SETFL, os.O_ASYNC)
            other.send(b"x")
            return False  # the host sees who is dead

        return act

    victims = SPEC["others"]
    return breaches(
        **{f"kill_{pid}": lambda pid=pid: os.kill(pid, signal.SIGKILL) for pid in victims},
        **{f"group_{pid}": lambda pid=pid: os.kill(-pid, signal.SIGKILL) for pid in victims},
        **{f"stop_{pid}": lambda pid=pid: os.kill(pid, signal.SIGSTOP) for pid in victims},
        **{f"thread_{pid}": lambda pid=pid: checked(libc.syscall(234, pid, pid, signal.SIGKILL)) for pid in victims},
        **{f"queue_{pid}": lambda pid=pid: checked(libc.syscall(129, pid, 9, bytes(128))) for pid in victims},
        **{f"folder_{pid}": by_folder(pid) for pid in victims},
        **{f"descriptor_{pid}": by_descriptor(pid) for pid in victims},
        parent=lambda: os.kill(os.getppid(), signal.SIGKILL),
    )


def kill_all():
    """kill(-1) reaches whatever this user may signal, the striker's own process not included."""
    breaches(all=lambda: os.kill(-1, signal.SIGKILL))
    return []


def trace_judge():
    def write_memory(pid):
        word = ctypes.c_uint64(0)
        place = (ctypes.c_void_p * 2)(ctypes.addressof(word), 8)
        return lambda: checked(libc.process_vm_writev(pid, place, 1, (ctypes.c_void_p * 2)(0x400000, 8), 1, 0))

    attempts = {}
    for pid in SPEC["others"]:
        attempts |= {
            f"attach_{pid}": lambda pid=pid: checked(libc.ptrace(16, pid, 0, 0)),
            f"seize_{pid}": lambda pid=pid: checked(libc.ptrace(0x4206, pid, 0, 0)),
            f"vm_write_{pid}": write_memory(pid),
            f"mem_{pid}": lambda pid=pid: os.open(f"/proc/{pid}/mem", os.O_RDWR),
            f"take_fd_{pid}": lambda pid=pid: checked(libc.syscall(434, pid, 0)),
        }
    return breaches(**attempts)


def slow_others():
    import resource

    attempts = {"own_priority": lambda: os.nice(-5), "user": lambda: os.setpriority(os.PRIO_USER, 0, 19)}
    for pid in SPEC["others"]:
        attempts |= {
            f"priority_{pid}": lambda pid=pid: os.setpriority(os.PRIO_PROCESS, pid, 19),
            f"policy_{pid}": lambda pid=pid: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
            f"limit_{pid}": lambda pid=pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1, 1)),
        }
    return breaches(**attempts)


def flood_stdout():
    for _ in range(SPEC["output_cap"] >> 20):
        os.write(1, b"correct 1.0\n" * (1 << 16) + b"x" * (1 << 18))
    return ["output"]


def flood_stderr():
    written = 0
    while written < SPEC["output_cap"]:
        written += os.write(2, b"x" * (1 << 20))
    return ["errors"]


def close_descriptors():
    os.closerange(0, 512)
    return []


def duplicate_descriptors():
    for number in range(3, 12):
        for other in range(3, 12):
            breaches(one=lambda number=number, other=other: os.dup2(number, other))
    return []


def write_garbage():
    for number in range(3, 64):
        breaches(one=lambda number=number: (os.set_blocking(number, False), os.write(number, b"correct!" * 8192)))
    return []


def stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)
    return []


def ignore_signals():
    for number in range(1, 65):
        libc.signal(number, 1)
    while True:
        time.sleep(0.01)


def process_controls():
    breaches(
        parent_death=lambda: libc.prctl(1, 0, 0, 0, 0),
        hidden=lambda: libc.prctl(4, 0, 0, 0, 0),
        anybody_traces=lambda: libc.prctl(0x59616D61, -1, 0, 0, 0),
        adopts=lambda: libc.prctl(36, 1, 0, 0, 0),
    )
    return breaches(
        personality=lambda: checked(libc.personality(0x0040000)),
        uselib=lambda: checked(libc.syscall(134, b"/etc/passwd")),
        namespace=lambda: checked(libc.unshare(0x10000000)),
        mount=lambda: checked(libc.mount(b"none", b".", b"tmpfs", 0, None)),
        root=lambda: os.setuid(0) if os.getuid() else False,
        chroot=lambda: os.chroot("."),
        clock=lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()),
        host_name=lambda: socket.sethostname("kb-hostile"),
        ring=lambda: checked(libc.syscall(425, 8, bytes(120))),
    )


def poison_modules():
    """Modules of known names wherever a later process may look first."""
    home = os.path.expanduser("~")
    places = [".", home, os.environ["TMPDIR"]]
    for folder in (".cache/torch_extensions", ".triton/cache", ".nv/ComputeCache", ".config/pip"):
        places.append(os.path.join(home, folder))
        breaches(one=lambda: os.makedirs(places[-1]))
    for name in ("torch", "json", "sitecustomize", "usercustomize", "numpy", "triton"):
        for folder in places:
            with contextlib.suppress(OSError), open(os.path.join(folder, name + ".py"), "w") as file:
                file.write("raise SystemExit('kb-hostile was imported')\n")
    return []


def rewrite_itself():
    """Another program in place of the one that was handed in: judged would be what nobody has recorded."""
    with open(__file__, "a") as file:
        file.write("\ndef report(found):\n    raise RuntimeError('BREACH: rewritten')\n\n\nreport(1)\n")
    return []


def install_package():
    """A local package, so that nothing but the fence stands in the way; then one from the network."""
    os.makedirs("package", exist_ok=True)
    with open("package/setup.py", "w") as file:
        file.write("from setuptools import setup\nsetup(name='kb-hostile', py_modules=[])\n")
    start = [sys.executable, "-m", "pip", "install", "--no-input", "--retries", "0", "--timeout", "1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "timeout": 60}
    local = [*start, "--no-index", "--no-build-isolation", "--no-deps", "./package"]
    return breaches(local=lambda: subprocess.run(local, **quiet).returncode == 0) + breaches(
        network=lambda: subprocess.run([*start, "tomli"], **quiet).returncode == 0
    )


def leak_per_call():
    """Called by every forward call: none takes long, and none gives anything back."""
    if len(held) << 26 > SPEC["memory_cap"]:
        return ["memory over many calls"]
    held.append(bytearray(b"x") * (64 << 20))
    return []


def bury_files():
    """Folders too deep for a path, and some that only their maker may enter: clearing up stumbles over both."""
    os.mkdir("closed")
    with open("closed/inside", "w") as file:
        file.write("x")
    os.mkdir("silent", 0o300)
    here = os.open(".", os.O_DIRECTORY)
    for _ in range(SPEC["depth_cap"]):
        os.mkdir("deep")
        os.chdir("deep")
    os.fchdir(here)
    os.chmod("closed", 0)
    return []


def whatever_is_refused():
    """All strikes at once that ask for something and are told no."""
    asking = (read_secrets, write_outside, change_metadata, open_sockets, kill_everything, trace_judge, slow_others)
    return [name for strike in (*asking, process_controls, poison_modules) for name in strike()]

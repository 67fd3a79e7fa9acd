"""Input and output that fails: a C library that is loaded before libc, and a process that forks one child per fault.

    LD_PRELOAD=faults.so python islands_faults.py FOLDER ERRNO KINDS FIRST STRIDE

Prints one JSON line for every fault: which call failed, what the store said, and whether all was well afterwards.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WRITE = 1, SYNC = 2, READ = 4, RESIZE = 8, TORN = 16 };

static long countdown, calls;
static int error_number, kinds;
static char marker[256];
static const char *fired = "";

void fault_arm(long nth, int number, int which, const char *part) {
    countdown = nth; error_number = number; kinds = which; calls = 0; fired = "";
    strncpy(marker, part, sizeof marker - 1);
}
const char *fault_fired(void) { return fired; }
long fault_calls(void) { return calls; }

static int fails(int fd, int kind, const char *name) {
    char link[64], path[512];
    if (!(kinds & kind) || !marker[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    if (!strstr(path, marker)) return 0;
    ++calls;
    if (countdown <= 0 || --countdown) return 0;
    fired = name;
    errno = error_number;
    return 1;
}

#define NEXT(name) __typeof__(name) *next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define WRITER(name, declared, passed)                                        \
    ssize_t name declared {                                                   \
        NEXT(name);                                                           \
        if (fails(fd, WRITE, #name)) {                                        \
            size_t size = kinds & TORN ? whole / 2 : 0;                       \
            if (size) (void)!next passed;                                     \
            errno = error_number;                                             \
            return -1;                                                        \
        }                                                                     \
        size_t size = whole;                                                  \
        return next passed;                                                   \
    }
#define PLAIN(type, name, kind, declared, passed) \
    type name declared { NEXT(name); return fails(fd, kind, #name) ? -1 : next passed; }

WRITER(pwrite, (int fd, const void *from, size_t whole, off_t at), (fd, from, size, at))
WRITER(pwrite64, (int fd, const void *from, size_t whole, off64_t at), (fd, from, size, at))
WRITER(write, (int fd, const void *from, size_t whole), (fd, from, size))
PLAIN(ssize_t, pread, READ, (int fd, void *to, size_t size, off_t at), (fd, to, size, at))
PLAIN(ssize_t, pread64, READ, (int fd, void *to, size_t size, off64_t at), (fd, to, size, at))
PLAIN(ssize_t, read, READ, (int fd, void *to, size_t size), (fd, to, size))
PLAIN(int, fsync, SYNC, (int fd), (fd))
PLAIN(int, fdatasync, SYNC, (int fd), (fd))
PLAIN(int, ftruncate, RESIZE, (int fd, off_t size), (fd, size))
PLAIN(int, ftruncate64, RESIZE, (int fd, off64_t size), (fd, size))
"""

WRITE, SYNC, READ, RESIZE, TORN = 1, 2, 4, 8, 16
EVERY = WRITE | SYNC | READ | RESIZE
STEPS = 6
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
LONG = "error: no tile of that size\n" * 40


def work(db: Path, acknowledge: Callable[[str], None]) -> None:
    """The command that is repeated: begins or resumes run demo, goes on to STEPS evaluations, compacts, backs up."""
    import islands_makers as makers

    from islands.backup import back_up
    from islands.compaction import compact
    from islands.store import open_store

    with open_store(db) as store:
        if store.find_run("run00000") is None:
            store.create_run(makers.run())
        with store.lease("run00000"):
            for attempt in store.attempts("run00000"):
                if attempt.outcome is None:
                    store.close_attempt("run00000", attempt.number, "lost")
            for candidate in store.pending("run00000"):
                tell(store, candidate, acknowledge)
            while len(store.history("run00000")) < STEPS:
                number = store.next_number("run00000")
                candidate = makers.candidate(number, source=f"x = {number}\n" * 100)
                store.open_attempt("run00000", number, candidate.island, "tune")
                with store.transaction():
                    store.add_candidate("run00000", candidate)
                    store.close_attempt("run00000", number, "candidate")
                tell(store, candidate, acknowledge)
    compact(db)
    copy = db.with_name("copy.db")
    if not copy.exists():
        back_up(db, copy)


def tell(store: Any, candidate: Any, acknowledge: Callable[[str], None]) -> None:
    import islands_makers as makers

    evaluation = makers.evaluation(candidate, 1 + candidate.number / 10, log=LONG + str(candidate.number))
    store.add_evaluation("run00000", candidate.id, evaluation, makers.key(candidate))
    acknowledge(candidate.id)


def look(db: Path) -> dict[str, Any]:
    """What the file holds, and whether it is whole."""
    from islands.integrity import examine
    from islands.population import Population, PopulationConfig
    from islands.store import open_store

    with open_store(db) as store:
        history = store.history("run00000")
        told = store.counts("run00000").told
    population = Population(PopulationConfig(islands=4), "run00000", 7)
    for entry in history:
        population.tell(entry)
    return {
        "told": [entry.candidate.id for entry in history],
        "counted": told,
        "findings": list(examine(db).findings),
        "logs": all(entry.evaluation.log.startswith(LONG) for entry in history),
        "digest": population.digest(),
    }


def in_child(function: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the function returns in a forked process; a StoreError as `error`, anything else raised as `bug`."""
    from islands.database import StoreError

    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = function()
        except StoreError as error:
            said = {"error": str(error)}
        except BaseException:
            said = {"bug": traceback.format_exc()}
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else {"bug": "the child died without a word"}


def one_fault(shim: ctypes.CDLL, folder: Path, nth: int, number: int, kinds: int) -> dict[str, Any]:
    """The command with its nth call failing, a look, the command again, a look."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    db = folder / "kb.db"
    acknowledged = folder.parent / "acknowledged"
    acknowledged.write_text("")

    def faulty() -> dict[str, Any]:
        with acknowledged.open("a", buffering=1) as file:
            shim.fault_arm(nth, number, kinds, str(folder).encode())
            try:
                work(db, lambda name: print(name, file=file))
            finally:
                fired, calls = shim.fault_fired().decode(), shim.fault_calls()
                shim.fault_arm(0, 0, 0, b"")
                (folder.parent / "fired").write_text(json.dumps({"fired": fired, "calls": calls}))
        return {}

    (folder.parent / "fired").unlink(missing_ok=True)
    first = in_child(faulty)
    found = {"nth": nth, **json.loads((folder.parent / "fired").read_text()), **first}
    found["acknowledged"] = acknowledged.read_text().split()
    found["between"] = in_child(lambda: look(db)) if found["acknowledged"] else {}
    found |= {"again": in_child(lambda: work(db, lambda name: None) or {}), "after": in_child(lambda: look(db))}
    found["partials"] = [file.name for file in folder.iterdir() if "partial" in file.name]
    found["copy"] = in_child(lambda: look(folder / "copy.db"))
    return found


def main() -> None:
    folder, number, kinds, first, stride = Path(sys.argv[1]), *(int(word) for word in sys.argv[2:6])
    shim = ctypes.CDLL(None)
    shim.fault_fired.restype = ctypes.c_char_p
    shim.fault_calls.restype = ctypes.c_long
    shim.fault_arm.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int, ctypes.c_char_p]
    import islands.backup
    import islands.compaction
    import islands.population  # noqa: F401 - imported once, before forking

    print(json.dumps(one_fault(shim, folder / "db", 0, number, kinds)), flush=True)
    nth = first
    while True:
        found = one_fault(shim, folder / "db", nth, number, kinds)
        if not found["fired"]:
            return
        print(json.dumps(found), flush=True)
        nth += stride


if __name__ == "__main__":
    main()

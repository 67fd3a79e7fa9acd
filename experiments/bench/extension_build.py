"""How long KernelBench-form C++ extensions take to build by each route, and whether the routes agree.

    python -m experiments.bench.extension_build --out experiments/bench/results/extension_build.json

Every entry of the corpus is built by the route that fitness/inline.py picks and again with torch's own headers
(the full route, the same compile command as torch's load_inline), each in a fresh process. Then all calls are
made on both modules: results must be equal bit for bit, exceptions in type and message (without addresses and
C++ backtraces), warnings in text. Wall time on a shared machine is noisy, so CPU seconds stand beside it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from experiments.bench.extension_corpus import CORPUS, Entry

LEAN = Entry(
    "lean_c_abi",
    """
#include <algorithm>
#include <cmath>
#include <cstdint>
extern "C" void relu(const float* x, float* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) out[i] = std::max(x[i], 0.0f);
}
""",
    None,
    (),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the report here as JSON")
    parser.add_argument("--only", nargs="*", default=[], help="names of entries; all when left out")
    parser.add_argument(
        "--repeats", type=int, default=3, help="builds by the picked route (the full one is built once)"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--route", choices=["picked", "full"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        json.dump(build_one(options.child, options.route), sys.stdout)
        return 0
    entries = [entry for entry in (LEAN, *CORPUS) if not options.only or entry.name in options.only]
    rows = []
    for entry in entries:
        rows.append(compare(entry, options.repeats))
        print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    report = {**machine(), **summary(rows), "precompiled_header": precompiled_header(), "rows": rows}
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps({name: value for name, value in report.items() if name != "rows"}, indent=1))
    return 0 if all(row["differences"] == [] for row in rows) else 1


def compare(entry: Entry, repeats: int) -> dict[str, Any]:
    """One row: the picked route's seconds (median of the repeats), the full route's, and what differs.

    A fallback's own seconds hold the slim attempt too; its full route isn't timed apart.
    """
    picked = [in_child(entry, "picked") for _ in range(repeats)]
    full = picked[0] if picked[0]["route"] == "full" else in_child(entry, "full")
    pairs = zip(entry.calls, picked[0]["outcomes"], full["outcomes"], strict=True)
    return {
        "name": entry.name,
        "route": picked[0]["route"],
        "fallback_reason": picked[0]["fallback_reason"],
        "wall_s": statistics.median(run["wall_s"] for run in picked),
        "cpu_s": statistics.median(run["cpu_s"] for run in picked),
        "full_wall_s": full["wall_s"],
        "full_cpu_s": full["cpu_s"],
        "calls": len(entry.calls),
        "differences": [
            {"call": call, "picked": mine, "full": theirs} for call, mine, theirs in pairs if mine != theirs
        ],
    }


def in_child(entry: Entry, route: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "experiments.bench.extension_build", "--child", entry.name, "--route", route]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def build_one(name: str, route: str) -> dict[str, Any]:
    """In a child process: build one entry, call it, and say how long the compiler took and what came out."""
    entry = next(entry for entry in (LEAN, *CORPUS) if entry.name == name)
    with tempfile.TemporaryDirectory() as folder:
        module = build(entry, folder, only_full=route == "full")
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        report = json.loads(next(Path(folder).glob("*/build.json")).read_text())
        outcomes = [outcome(module, call) for call in entry.calls]
    return {
        "route": report["route"],
        "fallback_reason": report["fallback_reason"],
        "wall_s": report["compile_s"],
        "cpu_s": round(used.ru_utime + used.ru_stime, 3),
        "outcomes": outcomes,
    }


def build(entry: Entry, folder: str, only_full: bool) -> Any:
    """The entry's module as a candidate would get it; `only_full` withholds the slim headers."""
    from torch.utils import cpp_extension

    from fitness import inline
    from fitness.backends import cpp

    if only_full:
        cpp.SLIM_TORCH = ("withheld", "withheld")
    inline.install("build", folder)
    lean = entry is LEAN
    return cpp_extension.load_inline(
        name=entry.name,
        cpp_sources=entry.source,
        functions=list(entry.functions) if entry.functions else None,
        extra_cflags=list(entry.cflags),
        no_implicit_headers=lean,
        is_python_module=not lean,
    )


def outcome(module: Any, call: str) -> str:
    """What a call gives, as text that is equal exactly when the results are: values, exception, warnings."""
    names = {"m": module, **tensors()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            text = describe(eval(call, names))
        except Exception as error:
            text = f"{type(error).__name__}: {without_addresses(str(error))}"
    return " | ".join([text, *(f"{item.category.__name__}: {without_addresses(str(item.message))}" for item in caught)])


def tensors() -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    sizes = {"x": (6, 40), "w": (40, 24), "b": (24,), "p": (1, 3, 8, 8)}
    drawn = {name: torch.randn(size) for name, size in sizes.items()}
    return {**drawn, "d": torch.randn(5, 7, dtype=torch.float64), "i": torch.arange(6), "torch": torch}


def describe(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        digest = hashlib.sha256(value.detach().contiguous().numpy().tobytes()).hexdigest()[:16]
        return f"tensor({value.dtype}, {tuple(value.shape)}, {value.stride()}, {value.requires_grad}, {digest})"
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(describe(item) for item in value)}]"
    return repr(value)


def without_addresses(text: str) -> str:
    return re.sub(r"0x[0-9a-f]+", "0x", text.split("\nException raised from")[0])


def precompiled_header() -> dict[str, Any]:
    """What a precompiled slim header would cost and save: CPU seconds and megabytes, for one set of flags."""
    from fitness.backends import cpp

    entry = next(entry for entry in CORPUS if entry.name == "relu_pointer")
    source = (
        f'#include <torch/extension.h>\n{entry.source}\nPYBIND11_MODULE(slim, m) {{ m.def("f", &relu_forward); }}\n'
    )
    extension = cpp.Extension("slim", (("main.cpp", source),), entry.cflags, (), (), True)
    command = ["g++", *cpp.compile_flags(extension, "slim")]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kb_slim").mkdir()
        (Path(folder) / "main.cpp").write_text(source)
        header = Path(folder) / "kb_slim" / "all.h.gch"
        without = cpu_s_of([*command, "-c", "main.cpp", "-o", "main.o"], folder)
        build = cpu_s_of([*command, "-x", "c++-header", str(cpp.SLIM_DIR / "kb_slim/all.h"), "-o", str(header)], folder)
        using = cpu_s_of(["g++", f"-I{folder}", *command[1:], "-c", "main.cpp", "-o", "main.o"], folder)
        size = header.stat().st_size
    return {"compile_cpu_s": without, "with_header_cpu_s": using, "header_cpu_s": build, "header_mb": size // 1_000_000}


def cpu_s_of(command: list[str], folder: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 3)


def machine() -> dict[str, Any]:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "load_average": [round(value, 1) for value in os.getloadavg()],
        "torch": torch.__version__,
        "python": platform.python_version(),
        "compiler": compiler,
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates and medians over the corpus, and over its slim builds alone."""
    with_torch = [row for row in rows if row["route"] != "lean"]
    slim = [row for row in rows if row["route"] == "slim"]
    medians = {
        f"slim_{name}_median": statistics.median(row[name] for row in slim) if slim else None
        for name in ("wall_s", "cpu_s", "full_wall_s", "full_cpu_s")
    }
    fallbacks = [row["name"] for row in with_torch if row["route"] == "full"]
    return {
        "entries": len(with_torch),
        "fallbacks": fallbacks,
        "fallback_rate": round(len(fallbacks) / len(with_torch), 3) if with_torch else None,
        "calls_compared": sum(row["calls"] for row in rows),
        "calls_that_differ": sum(len(row["differences"]) for row in rows),
        **medians,
    }


if __name__ == "__main__":
    sys.exit(main())

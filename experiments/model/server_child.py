"""The process that holds the model: serves one GGUF file on 127.0.0.1 until its parent is gone.

    python -m experiments.model.server_child '{"gguf": "...", "name": "...", "port": 0, "threads": 1, "context": 8192}'

Prints one JSON line, `{"address": "http://127.0.0.1:PORT"}`, and then ends when its standard input does or when
another process has become its parent. Needs the standard library and xllamacpp; a process of its own because the
server cannot be stopped in the middle of a reply.
"""

from __future__ import annotations

import json
import os
import select
import sys
from typing import Any

PROMPT_CACHE_MIB = 512
"""For the beginnings of earlier prompts: those of a run are alike, and reading them is most of the work."""
CHECK_S = 0.5
"""How often the parent is looked for: a copy of it may hold our standard input open."""


def start(options: dict[str, Any]) -> Any:
    """The running server. Raises RuntimeError when the file is no model or the port is taken."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options["gguf"]
    params.model_alias = {options["name"]}
    params.hostnames = ["127.0.0.1"]
    params.port = options["port"]
    params.n_ctx = options["context"]
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.cors_origins = "http://127.0.0.1"  # no page in a browser may ask
    params.ui = False
    params.offline = True
    params.verbosity = 0
    return xllamacpp.Server(params)


def wait_for_parent(parent: int) -> None:
    """Returns once standard input has ended or `parent` is no longer our parent."""
    while os.getppid() == parent:
        readable, _, _ = select.select([sys.stdin], [], [], CHECK_S)
        if readable and not os.read(sys.stdin.fileno(), 1024):
            return


def main() -> None:
    parent = os.getppid()
    server = start(json.loads(sys.argv[1]))
    print(json.dumps({"address": server.listening_address}), flush=True)
    wait_for_parent(parent)
    os._exit(0)  # the server's own end waits for a reply that is being written


if __name__ == "__main__":
    main()

"""Specs, requests and a journal on disk, for the tests of the client."""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from pathlib import Path

import pytest
from openai_server import PRICE_IN, PRICE_OUT, Act, OpenAIServer

from mutators.dialogue import Message, ModelError, Reply, Request
from mutators.ledger import Ledger
from mutators.llm import Client, ClientOptions, ModelSpec
from mutators.proposal import Usage

MODEL = "openai/scripted"
KEY = "sk-very-secret-0123456789"
FAST = ClientOptions(backoff_s=0.01, longest_backoff_s=0.05, deadline_s=20)
GOOD = Act()


class FileJournal:
    """A journal of one JSON line per event."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def _write(self, event: str, request: Request, **fields) -> None:
        line = {"event": event, "key": [request.number, request.turn], **fields}
        with self.lock, self.path.open("a") as file:
            self.events.append(line)
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def reply(self, number: int, turn: int) -> Reply | None:
        with self.lock:
            for line in self.events:
                if line["event"] == "close" and line["key"] == [number, turn]:
                    return Reply(**{**line["reply"], "usage": Usage(**line["reply"]["usage"])})
        return None

    def open(self, request: Request, worst_usd: float | None) -> None:
        self._write("open", request, worst_usd=worst_usd, asked=dataclasses.asdict(request))

    def close(self, request: Request, reply: Reply) -> None:
        self._write("close", request, reply=dataclasses.asdict(reply))

    def fail(self, request: Request, error: ModelError) -> None:
        self._write("fail", request, kind=error.kind, reason=error.reason, usage=dataclasses.asdict(error.usage))

    def names(self) -> list[str]:
        return [line["event"] for line in self.events]


def make_spec(server: OpenAIServer, **changes) -> ModelSpec:
    options = {"api_base": server.url, "api_key_env": "SCRIPTED_KEY", "price_in": PRICE_IN, "price_out": PRICE_OUT}
    return ModelSpec(**{"name": MODEL, **options, "timeout_s": 10.0, "max_tokens": 500, **changes})


def make_request(number: int = 0, text: str = "Make it faster.", **changes) -> Request:
    messages = (Message("system", "You write kernels."), Message("user", text))
    return Request(number, 0, "rewrite", MODEL, messages, **{"island": number % 3, **changes})


def make_client(server: OpenAIServer, journal: FileJournal, ledger: Ledger | None = None, **changes) -> Client:
    return Client([make_spec(server, **changes)], ledger or Ledger(), journal, FAST)


def ask_error(client: Client, request: Request) -> ModelError:
    with pytest.raises(ModelError) as caught:
        client.ask(request)
    return caught.value


def wait_until(is_so, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.01)

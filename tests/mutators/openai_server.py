"""A real HTTP server on loopback that speaks the OpenAI protocol, misbehaves as told, and keeps accounts of its own."""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROMPT_PICO, COMPLETION_PICO = 2_500_000, 10_000_000
"""The server's list prices: $2.50 and $10 per million tokens."""
PRICE_IN, PRICE_OUT = 2.5e-6, 1e-5


@dataclass(frozen=True)
class Act:
    """What the server does with one request."""

    text: str | None = "```cpp\nint x;\n```"
    status: int = 200
    reasoning: str = ""
    finish: str = "stop"
    usage: Any = "true"
    """`true` for the real counts, None for no field at all, anything else as it stands."""
    error: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    manner: str = ""
    """`hang`, `reset`, `endless`, `gzip`, `html`, `no choices` or nothing special."""
    delay_s: float = 0.0
    rows: int = 1_000
    """Most vectors in an answer."""


@dataclass(frozen=True)
class Served:
    """One request as the server saw it; `pico` is what it charges, `certainty` what the client can know of that."""

    body: dict[str, Any]
    act: Act
    key: str
    pico: int
    certainty: str
    worst_pico: int


class OpenAIServer(ThreadingHTTPServer):
    """`with OpenAIServer(choose) as server`: `choose(body, n)` gives the Act of the n-th request."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, choose: Callable[[dict[str, Any], int], Act] | None = None, acts: tuple[Act, ...] = ()) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.choose = choose or (lambda _body, n: acts[min(n, len(acts) - 1)])
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.served: list[Served] = []
        self.begun_at: list[float] = []
        """On the monotonic clock."""
        self.begun = self.connections = self.now = self.peak = self.tally_pico = self.sent_bytes = 0
        self.tallies: list[int] = []
        """Every value that the tally had."""
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True, name="openai-server").start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def begin(self) -> int:
        with self.lock:
            self.begun += 1
            self.begun_at.append(time.monotonic())
            self.now += 1
            self.peak = max(self.peak, self.now)
            return self.begun - 1

    def charge(self, served: Served) -> None:
        with self.lock:
            self.served.append(served)
            self.tally_pico += served.pico
            self.tallies.append(self.tally_pico)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may leave when they like."""

    def close(self) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()

    def __exit__(self, *_: object) -> None:
        self.close()


def by_words(text: str) -> list[float]:
    """This server's embedding: how often each of a few words stands in the text."""
    return [float(text.count(word)) for word in ("for", "while", "tile", "vector")]


def tokens_of(text: str) -> int:
    """This server's tokenizer: 3 bytes a token."""
    return -(-len(text.encode(errors="replace")) // 3)


def texts_of(body: dict[str, Any]) -> list[str]:
    """The text of each message, in OpenAI's form or Anthropic's, or of each input."""
    if "input" in body:
        return list(body["input"])
    contents = [message["content"] for message in body["messages"]] + ([body["system"]] if "system" in body else [])
    return [one if isinstance(one, str) else "".join(part["text"] for part in one) for one in contents]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: OpenAIServer

    def setup(self) -> None:
        super().setup()
        with self.server.lock:
            self.server.connections += 1

    def finish(self) -> None:
        with contextlib.suppress(OSError):
            super().finish()
        with self.server.lock:
            self.server.connections -= 1

    def log_message(self, *_: object) -> None:
        """Silence."""

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        act = server.choose(body, server.begin())
        counts, certainty = self._counts(body, act)
        pico = counts[0] * PROMPT_PICO + counts[1] * COMPLETION_PICO
        texts = texts_of(body)
        worst = sum(len(text.encode()) for text in texts) + 16 * len(texts) + 256, body.get("max_tokens", 0)
        worst_pico = worst[0] * PROMPT_PICO + worst[1] * COMPLETION_PICO
        server.charge(Served(body, act, self.headers.get("Authorization", ""), pico, certainty, worst_pico))
        try:
            self._act(act, body, counts)
        except OSError:
            self.close_connection = True
        finally:
            with server.lock:
                server.now -= 1

    def _counts(self, body: dict[str, Any], act: Act) -> tuple[tuple[int, int], str]:
        """The true tokens, none where nothing is charged, and how the client can know them."""
        prompt = sum(tokens_of(text) + 4 for text in texts_of(body))
        completion = min(body.get("max_tokens", 0), tokens_of((act.text or "") + act.reasoning))
        if act.status in (502, 504) or act.manner in ("hang", "reset", "endless", "html"):
            return (prompt, completion), "uncertain"
        if act.status != 200:
            return (0, 0), "free"
        return (prompt, completion), "reported" if act.usage == "true" else "estimated"

    def _act(self, act: Act, body: dict[str, Any], counts: tuple[int, int]) -> None:
        if act.delay_s:
            self.server.stopping.wait(act.delay_s)
        if act.manner == "hang":
            self.server.stopping.wait(30)
            self.close_connection = True
            return
        raw = json.dumps(self._document(act, body, counts)).encode()
        if act.manner == "html":
            raw = b"<html><body>Welcome to the hotel's network</body></html>"
        headers = dict(act.headers)
        if act.manner == "gzip":
            raw, headers["Content-Encoding"] = gzip.compress(raw), "gzip"
        self.send_response(act.status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(1 << 40 if act.manner == "endless" else len(raw)))
        self.end_headers()
        if act.manner == "reset":
            self.wfile.write(raw[: len(raw) // 2])
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        while act.manner == "endless":
            self.wfile.write(b" " * 65_536)
            self.server.sent_bytes += 65_536
        self.wfile.write(raw)

    def _document(self, act: Act, body: dict[str, Any], counts: tuple[int, int]) -> dict[str, Any]:
        if act.status != 200:
            return {"error": {"message": act.error or f"status {act.status}", "type": "error", "code": None}}
        if self.path.endswith("/embeddings"):
            rows = [{"object": "embedding", "index": n, "embedding": by_words(t)} for n, t in enumerate(body["input"])]
            usage = {"prompt_tokens": counts[0], "total_tokens": counts[0]}
            return {"object": "list", "model": body["model"], "data": rows[: act.rows], "usage": usage}
        if self.path.endswith("/messages"):  # Anthropic's protocol
            usage = {"input_tokens": counts[0], "output_tokens": counts[1]}
            content = [{"type": "text", "text": act.text}]
            whole = {"type": "message", "role": "assistant", "stop_reason": "end_turn", "content": content}
            return {**whole, "id": "1", "model": body["model"], "usage": usage}
        message = {"role": "assistant", "content": act.text}
        if act.reasoning:
            message["reasoning_content"] = act.reasoning
        choices = [{"index": 0, "finish_reason": act.finish, "message": message}]
        document = {"id": "1", "object": "chat.completion", "created": 1, "model": body["model"], "choices": choices}
        if act.manner == "no choices":
            document["choices"] = []
        true = {"prompt_tokens": counts[0], "completion_tokens": counts[1], "total_tokens": sum(counts)}
        usage = true if act.usage == "true" else act.usage
        return document if usage is None else {**document, "usage": usage}

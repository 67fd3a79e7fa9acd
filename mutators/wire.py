"""One HTTP try to a model through litellm.

All requests of a Wire share one event loop in one thread and one HTTP session, which sees what litellm does not say:
how many requests really went out, whether they left this machine, their true status, and how long the bodies are.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import json
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mutators.faults import Exchange, Fault, fault_of, secrets_of
from mutators.vectors import packed

log = logging.getLogger(__name__)

BODY_BYTES = 4 << 20
"""Longest body that is read: 1 MB of text and of reasoning, escaped, fit."""
CODED_BODY_BYTES = 64 << 10
"""Longest compressed body, which we never ask for: it may grow a thousandfold when unpacked."""
IDLE_S = 4.0
"""Connections idle for longer are closed: servers close theirs after 5 s or more, and a request that meets
a closing connection has an unknown outcome."""
OWN_HANDLER = frozenset({"anthropic", "gemini", "vertex_ai", "vertex_ai_beta", "bedrock", "databricks", "huggingface"})
"""Providers for which litellm 1.110 ignores the session that it is given, but takes an HTTP handler."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. The two counts are the provider's own: anything may stand there."""

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: Any
    completion_tokens: Any


_exchange: ContextVar[Exchange] = ContextVar("kb_evolve_exchange")


class _TooLong(Exception):
    pass


@functools.cache
def load_litellm() -> Any:
    """The litellm module, quiet and without the look-ups over the network that version 1.110 does at import."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else its import reads keys from a .env file in the folder
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.DEFAULT_MAX_RETRIES = 0  # type: ignore[misc]  # 1.110 takes it where an embedding is to be tried 0 times more
    litellm.drop_params = False  # else it may send a request twice, the second time with parts left out
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")  # quotes the reply
    warnings.filterwarnings("ignore", message="coroutine '.*completion' was never awaited")  # cancelled before it began
    return litellm


class Wire:
    """Sends; several threads may. Nothing runs before the first `send`, nothing is left after `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._session: Any = None
        self._handler: Any = None
        self._futures: set[concurrent.futures.Future[Answer | Fault]] = set()
        self._is_cancelled = False

    def send(self, call: dict[str, Any], key: str, timeout_s: float, exchange: Exchange) -> Answer | Fault:
        """One try; `call` holds litellm's arguments, `exchange` is filled. Waits for at most `timeout_s`."""
        load_litellm()
        with self._lock:
            if self._is_cancelled:
                return Fault("cancelled", "the run stops")
            future = asyncio.run_coroutine_threadsafe(self._try(call, key, timeout_s, exchange), self._running_loop())
            self._futures.add(future)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            return Fault("cancelled", "the run stops", may_be_charged=True)
        finally:
            future.cancel()  # where the waiting thread was interrupted
            self._futures.discard(future)

    def cancel(self) -> None:
        """Ends what is in flight at once; every later `send` is refused."""
        with self._lock:
            self._is_cancelled = True
            futures = tuple(self._futures)
        for future in futures:
            future.cancel()

    def close(self) -> None:
        """Cancels, closes every connection and ends the thread."""
        self.cancel()
        with self._lock:
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None or self._pool is None:
            return
        asyncio.run_coroutine_threadsafe(self._shut(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)  # a name look-up in there may hang
        loop.close()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.set_exception_handler(_note_quietly)
            self._pool = concurrent.futures.ThreadPoolExecutor(8, thread_name_prefix="kb-evolve-litellm")
            self._loop.set_default_executor(self._pool)
            self._thread = threading.Thread(target=self._loop.run_forever, name="kb-evolve-llm", daemon=True)
            self._thread.start()
        return self._loop

    async def _shut(self) -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=2.0) if others else None
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # aiohttp closes its transports in callbacks

    async def _try(self, call: dict[str, Any], key: str, timeout_s: float, exchange: Exchange) -> Answer | Fault:
        _exchange.set(exchange)
        _mark_internal()
        litellm = load_litellm()
        if self._session is None:
            self._session = _new_session()
            self._handler = _new_handler(self._session)
        try:
            if litellm.get_llm_provider(call["model"], api_base=call.get("api_base"))[1] in OWN_HANDLER:
                call = {**call, "client": self._handler}
            ask = litellm.aembedding if "input" in call else litellm.acompletion
            async with asyncio.timeout(timeout_s):
                response = await ask(
                    **call, api_key=key or None, shared_session=self._session, max_retries=0, num_retries=0
                )
            return _vectors(response, call["input"]) if "input" in call else _answer(response)
        except Exception as error:
            return _salvaged(exchange) or fault_of(error, exchange, call["model"], timeout_s, secrets_of(key))
        finally:
            exchange.body.clear()


def _note_quietly(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Instead of asyncio's handler, which logs exceptions whole: litellm's hold keys."""
    log.debug("event loop noted type=%s", type(context.get("exception")).__name__)


def _mark_internal() -> None:
    """Switches litellm's own logging, callbacks and accounts off for this task (saves 2 ms of 5)."""
    with contextlib.suppress(ImportError):  # not part of litellm's documented names; seen in 1.110
        from litellm._internal_context import is_internal_call

        is_internal_call.set(True)


def _new_session() -> Any:
    """An aiohttp session that fills the Exchange of the running task and bounds what it reads."""
    import aiohttp

    class BoundedResponse(aiohttp.ClientResponse):
        async def start(self, connection: Any) -> Any:
            await super().start(connection)
            is_coded = self.headers.get("Content-Encoding", "identity").lower() != "identity"
            bounded = _BoundedBody(self.content, _exchange.get(), CODED_BODY_BYTES if is_coded else BODY_BYTES)
            self.content = bounded  # type: ignore[assignment]
            return self

    async def begins(_session: Any, _context: Any, params: Any) -> None:
        params.headers["Accept-Encoding"] = "identity"
        _exchange.get().requests += 1

    async def leaves(_session: Any, _context: Any, _params: Any) -> None:
        _exchange.get().has_left = True

    async def answers(_session: Any, _context: Any, params: Any) -> None:
        exchange = _exchange.get()
        exchange.status, exchange.headers = params.response.status, params.response.headers

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(begins)
    trace.on_request_headers_sent.append(leaves)
    trace.on_request_end.append(answers)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        cookie_jar=aiohttp.DummyCookieJar(),
        response_class=BoundedResponse,
        trace_configs=[trace],
    )


def _new_handler(session: Any) -> Any:
    """litellm's HTTP handler on our session, also when it connects anew after a failure."""
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler

    class Handler(AsyncHTTPHandler):
        def create_client(self, *args: Any, **options: Any) -> Any:
            return super().create_client(*args, **{**options, "shared_session": session})

    return Handler()


class _BoundedBody:
    """aiohttp's stream of a body, kept in the exchange and cut at a limit."""

    def __init__(self, stream: Any, exchange: Exchange, limit: int) -> None:
        self._stream, self._exchange, self._limit = stream, exchange, limit

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """The pieces. Raises _TooLong past the limit."""
        body = self._exchange.body
        try:
            async for chunk in self._stream.iter_chunked(size):
                body += chunk
                if len(body) > self._limit:
                    self._exchange.is_too_long = True
                    raise _TooLong
                yield chunk
        except Exception:
            self._exchange.is_broken = True
            raise


def _answer(response: Any) -> Answer:
    message = response.choices[0].message if response.choices else None
    usage = getattr(response, "usage", None)
    return Answer(
        text=_clean(getattr(message, "content", None)),
        reasoning=_clean(getattr(message, "reasoning_content", None)),
        finish_reason=_clean(response.choices[0].finish_reason if response.choices else "no choice")[:40],
        prompt_tokens=getattr(usage, "prompt_tokens", None),
        completion_tokens=getattr(usage, "completion_tokens", None),
    )


def _vectors(response: Any, texts: Sequence[str]) -> Answer:
    """Vectors as text. ValueError where one is missing or not of numbers."""
    rows = sorted(response.data, key=lambda row: row["index"])
    text = packed(texts, [row["embedding"] for row in rows])
    return Answer(text, "", "stop", getattr(response.usage, "prompt_tokens", None), 0)


def _clean(text: Any) -> str:
    """Text that can be stored: lone surrogates, which JSON can spell and UTF-8 cannot, become question marks."""
    return text.encode(errors="replace").decode() if isinstance(text, str) else ""


def _salvaged(exchange: Exchange) -> Answer | None:
    """A whole reply that litellm could not read, mostly because its usage numbers are no numbers."""
    if not 200 <= exchange.status < 300 or exchange.is_broken:
        return None
    try:
        reply = json.loads(exchange.body)
        choice = reply["choices"][0]
        text = choice["message"]["content"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    if not isinstance(text, str):
        return None
    usage = reply.get("usage")
    counts = usage if isinstance(usage, dict) else {}
    return Answer(
        _clean(text), _clean(choice["message"].get("reasoning_content")), _clean(choice.get("finish_reason"))[:40],
        counts.get("prompt_tokens"), counts.get("completion_tokens"),
    )  # fmt: skip

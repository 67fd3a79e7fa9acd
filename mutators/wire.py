"""One HTTP try to a model through litellm: what was asked, what came back or went wrong, and whether it may cost.

All requests of a Wire share one event loop in one thread and one HTTP session, which sees what litellm does not say:
how many requests really went out, whether they left this machine, their true status, and how long the bodies are.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import email.utils
import functools
import json
import logging
import os
import re
import threading
import time
import warnings
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from mutators.dialogue import Kind

log = logging.getLogger(__name__)

BODY_BYTES = 4 << 20
"""Longest body that is read: 1 MB of text and of reasoning, escaped, fit."""
CODED_BODY_BYTES = 64 << 10
"""Longest compressed body, which we never ask for: it may grow a thousandfold when unpacked."""
DETAIL_CHARS = 300
IDLE_S = 4.0
"""Connections idle for longer are closed: servers close theirs after 5 s or more, and a request that meets
a closing connection has an unknown outcome."""
HOPELESS = re.compile(r"insufficient_quota|exceeded your current quota|billing_hard_limit")
FILTERED = re.compile(r"content[ _-]?(filter|policy|management)|responsible_ai", re.IGNORECASE)
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model said. The two counts are the provider's own: anything may stand there."""

    text: str
    reasoning: str
    finish_reason: str
    prompt_tokens: Any
    completion_tokens: Any


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a try gave no answer."""

    kind: Kind
    reason: str
    may_retry: bool = False
    retry_after_s: float = 0.0
    may_be_charged: bool = False
    """Whether the provider may have charged it all the same."""


@dataclass(slots=True)
class Exchange:
    """What the HTTP session saw of one try."""

    requests: int = 0
    """HTTP requests begun: 1, more where the server redirects, 0 where the session was not used."""
    has_left: bool = False
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    is_too_long: bool = False
    is_broken: bool = False
    """The body ended before its time."""


_exchange: ContextVar[Exchange] = ContextVar("kb_evolve_exchange")


class _TooLong(Exception):
    """A body passed its limit."""


@functools.cache
def load_litellm() -> Any:
    """The litellm module, quiet and without the look-ups over the network that version 1.110 does at import."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    os.environ.setdefault("LITELLM_OFFLINE_MODE", "true")
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")  # else its import reads keys from a .env file in the folder
    import litellm

    litellm.suppress_debug_info = True
    litellm.telemetry = False
    litellm.drop_params = False  # else it may send a request twice, the second time with parts left out
    for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", message="Pydantic serializer warnings")  # quotes the reply
    return litellm


def secrets_of(key: str = "") -> tuple[str, ...]:
    """`key`, and the values of all environment variables that are named like credentials, longest first.

    Shorter values than these could be words of a text.
    """
    values = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= 16}
    return tuple(sorted(values | ({key} if len(key) >= 6 else set()), key=len, reverse=True))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    """The text without any of the secrets."""
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text


class Wire:
    """Sends; several threads may. Nothing runs before the first `send`, nothing is left after `close`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: concurrent.futures.ThreadPoolExecutor | None = None
        self._session: Any = None
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
        self._session = self._session or _new_session()
        try:
            async with asyncio.timeout(timeout_s):
                response = await litellm.acompletion(
                    **call, api_key=key or None, shared_session=self._session, max_retries=0, num_retries=0
                )
            return _answer(response)
        except Exception as error:
            return _salvaged(exchange) or _fault(error, exchange, call["model"], timeout_s, secrets_of(key))
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


def _fault(error: Exception, exchange: Exchange, model: str, timeout_s: float, secrets: tuple[str, ...]) -> Fault:
    """What an exception means. The session's facts come first: litellm judges by words in the server's text."""
    status = exchange.status
    left = exchange.has_left or (not exchange.requests and _names(error, "Timeout", "ServiceUnavailable", "Internal"))
    if exchange.is_too_long:
        return Fault("bad_reply", f"{model} sent more than {len(exchange.body) - 1:,} bytes", may_be_charged=True)
    if isinstance(error, TimeoutError) or (_names(error, "Timeout") and (exchange.is_broken or not status)):
        return Fault("timeout", f"{model} gave no reply in {timeout_s:g} s", True, may_be_charged=left)
    if exchange.is_broken:
        return Fault("connection", f"the connection to {model} broke in the middle of the reply", True, 0.0, True)
    detail = _detail(error, exchange, secrets)
    if 200 <= status < 300:
        return Fault("bad_reply", f"{model} sent a reply that is no chat completion: {detail}", may_be_charged=True)
    if not status and (left or exchange.requests):
        return Fault("connection", f"no connection to {model} or it broke: {detail}", True, may_be_charged=left)
    is_filtered = _names(error, "ContentPolicy") or (status == 400 and FILTERED.search(_text(exchange)) is not None)
    if is_filtered:
        return Fault("content_filter", f"{model} answered {status}: {detail}")
    reason = f"{model} answered {status}: {detail}" if status else f"{model} cannot be asked so: {detail}"
    headers = exchange.headers or getattr(getattr(error, "response", None), "headers", None) or {}
    return _fault_of_status(status or getattr(error, "status_code", None), reason, retry_after(headers))


def _names(error: Exception, *words: str) -> bool:
    return any(word in type(error).__name__ for word in words)


def _text(exchange: Exchange) -> str:
    return exchange.body[:20_000].decode(errors="replace")


def _fault_of_status(status: Any, reason: str, retry_after_s: float) -> Fault:
    """What an HTTP status means. Gateways (502, 504, 52x) do not know whether the model behind them worked."""
    if not isinstance(status, int) or status < 400:
        return Fault("bad_request", reason)
    if status in (401, 402, 403):
        return Fault("auth", reason)
    if status == 429:
        return Fault("rate_limit", reason, not HOPELESS.search(reason), retry_after_s)
    if status in (408, 409) or status >= 500:
        kind: Kind = "timeout" if status in (408, 504, 524) else "server"
        return Fault(kind, reason, True, retry_after_s, may_be_charged=status in (502, 504) or 520 <= status < 530)
    return Fault("bad_request", reason)


def _detail(error: Exception, exchange: Exchange, secrets: tuple[str, ...]) -> str:
    """The server's own words, or else the exception's: one line, without secrets, capped."""
    text = _text(exchange)
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        found = json.loads(exchange.body)["error"]
        code = found.get("code") if isinstance(found, dict) else None
        words = found["message"] if isinstance(found, dict) else found
        text = f"{words} ({code})" if code else str(words)
    text = redact(text or f"{type(error).__name__}: {str(error)[:20_000]}", secrets)
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= DETAIL_CHARS else line[:DETAIL_CHARS] + "..."


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that the server asks to wait, 0 where it does not say; both forms of RFC 9110, section 10.2.3."""
    milliseconds, text = headers.get("retry-after-ms", ""), headers.get("retry-after", "").strip()
    try:
        if milliseconds:
            seconds = float(milliseconds) / 1000
        else:
            seconds = float(text) if re.fullmatch(r"[0-9.]+", text) else _seconds_until(text)
    except (ValueError, TypeError, OverflowError):
        return 0.0
    return seconds if 0 < seconds < float("inf") else 0.0


def _seconds_until(date: str) -> float:
    return email.utils.parsedate_to_datetime(date).timestamp() - time.time() if date else 0.0

"""What can go wrong with a request to a model: its kind, whether to try again, and whether it may have cost money."""

from __future__ import annotations

import contextlib
import email.utils
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mutators.dialogue import Kind

DETAIL_CHARS = 300
HOPELESS = re.compile(r"insufficient_quota|exceeded your current quota|billing_hard_limit")
FILTERED = re.compile(r"content[ _-]?(filter|policy|management)|responsible_ai", re.IGNORECASE)
SECRET_NAME = re.compile(r"(KEY|TOKEN|SECRET|PASSWORD|CREDENTIALS?)$", re.IGNORECASE)


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

    def text(self) -> str:
        return self.body[:20_000].decode(errors="replace")


def fault_of(error: Exception, exchange: Exchange, model: str, timeout_s: float, secrets: tuple[str, ...]) -> Fault:
    """What an exception means. The session's facts come first: litellm judges by words in the server's text."""
    status = exchange.status
    left = exchange.has_left or (
        not exchange.requests and _names(error, "Timeout", "Connection", "ServiceUnavailable", "Internal")
    )
    if exchange.is_too_long:
        return Fault("bad_reply", f"{model} sent {len(exchange.body):,} bytes and more to come", may_be_charged=True)
    if isinstance(error, TimeoutError) or (_names(error, "Timeout") and (exchange.is_broken or not status)):
        return Fault("timeout", f"{model} gave no reply in {timeout_s:g} s", True, may_be_charged=left)
    if exchange.is_broken:
        return Fault("connection", f"the connection to {model} broke in the middle of the reply", True, 0.0, True)
    detail = _detail(error, exchange, secrets)
    if 200 <= status < 300:
        return Fault("bad_reply", f"{model} sent a reply that is no chat completion: {detail}", may_be_charged=True)
    if not status and (left or exchange.requests):
        return Fault("connection", f"no connection to {model} or it broke: {detail}", True, may_be_charged=left)
    reason = f"{model} answered {status}: {detail}" if status else f"{model} cannot be asked so: {detail}"
    if _names(error, "ContentPolicy") or (status == 400 and FILTERED.search(exchange.text())):
        return Fault("content_filter", reason)
    headers = exchange.headers or getattr(getattr(error, "response", None), "headers", None) or {}
    return _fault_of_status(status or getattr(error, "status_code", None), reason, retry_after(headers))


def _names(error: Exception, *words: str) -> bool:
    return any(word in type(error).__name__ for word in words)


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
    text = exchange.text()
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


def secrets_of(key: str = "") -> tuple[str, ...]:
    """`key`, and the values of all environment variables that are named like credentials, longest first.

    Shorter values than these could be words of a text.
    """
    values = {value for name, value in os.environ.items() if SECRET_NAME.search(name) and len(value) >= 16}
    return tuple(sorted(values | ({key} if len(key) >= 6 else set()), key=len, reverse=True))


def redact(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[redacted]")
    return text


def no_key(model: str, names: list[str]) -> str:
    """Why a model whose key stands in none of these environment variables is not asked."""
    return f"{model} needs a key in {' or '.join(names)}, which is not set; set it, or name a server by --api-base"

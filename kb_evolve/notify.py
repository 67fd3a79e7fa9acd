"""Notifications: a command or a webhook is told of a new best, of the end and of a failure.

Each hook has a thread of its own that delivers one message at a time, the newest: what came in between is left out. A
hook that fails is warned of once and is never an error of the search. Messages and docs: docs/notifications.md.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol
from urllib.parse import urlsplit

from islands.run import Run, utc_now
from kb_evolve.config import Config, ConfigError
from kb_evolve.live import Progress, duration_text, speedup_text
from kb_evolve.report.text import one_line

log = logging.getLogger(__name__)

URL_VARIABLE = "KB_EVOLVE_NOTIFY_URL"
"""Environment variable that stands in for --notify-url: an address in a command line can be seen by others."""
COMMAND_S = 10.0
"""Longest time that a command may take."""
REPLY_S = 5.0
"""Longest time that an address may take to answer, or to send nothing."""
WAITS_S = (1.0, 4.0, 16.0)
"""Between the tries of one message."""
LONGEST_WAIT_S = 60.0
"""What an address may ask for with Retry-After."""
LAST_WORDS_S = 20.0
"""How long the end of a run waits for its last messages."""
FAILURES = ("seed_failed", "judge_failed")
"""Reasons for a stop that are a failure of the search."""
SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|PRIVATE", re.IGNORECASE)
SECRET_VALUE = re.compile(r"://[^/\s@]*:[^/\s@]*@")
"""An address with a password."""
TEXT_LIMIT = 1_500
"""Characters of a message's text; Discord takes 2,000."""
HARMLESS = str.maketrans({"<": "‹", ">": "›", "@": "＠"})
"""What chats make mentions and links of."""

Message = dict[str, Any]
"""JSON values, `text` a sentence for people."""
Warn = Callable[[str], None]


class NotDelivered(Exception):
    """Why a message was not taken, in words that hold no secret."""


class Hook(Protocol):
    """Delivers messages; two implementations, CommandHook and WebHook."""

    name: str

    def deliver(self, message: Message, is_overtaken: Callable[[float], bool]) -> None:
        """Delivers or raises NotDelivered. `is_overtaken(s)` waits up to `s` seconds for a newer message."""
        ...

    def kill(self) -> None:
        """Gives up what is being delivered."""
        ...


def check_notify(config: Config) -> None:
    """ConfigError for a command or an address that cannot be used; runs and asks nothing."""
    if config.notify.command:
        words = _words(config.notify.command)
        if shutil.which(words[0]) is None:
            raise ConfigError(f"--notify-command: there is no program {words[0]!r}; give its path")
    if config.notify.url:
        try:
            parts = urlsplit(config.notify.url)
            is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_usable = False
        if not is_usable:
            raise ConfigError("--notify-url must be an address such as https://chat.example/hook, found another text")


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"--notify-command cannot be split into words: {error}; check its quotes") from error
    if not words:
        raise ConfigError("--notify-command names no program")
    return words


@contextmanager
def open_notifier(config: Config, run: Run, warn: Warn) -> Iterator[Notifier]:
    """The notifier of a run, which hears of every Progress; an exception that leaves the block is told as a failure."""
    keys = {str(one.get("api_key_env", "")) for one in config.models.settings.values()}
    hooks: list[Hook] = []
    if config.notify.command:
        hooks.append(CommandHook(_words(config.notify.command), scrubbed(os.environ, keys)))
    if config.notify.url:
        hooks.append(WebHook(config.notify.url))
    with Notifier(run, [Courier(hook, warn) for hook in hooks]) as notifier:
        yield notifier


class Notifier:
    """Turns the progress of one process's part of a run into messages."""

    def __init__(self, run: Run, couriers: list[Courier]) -> None:
        self._run, self._couriers = run, couriers
        self._elite: str | None = None
        """Id of the best that is known; empty: none; None: nothing was heard yet."""
        self._last: Progress | None = None
        self._is_over = False

    def __enter__(self) -> Notifier:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not self._is_over:
            reason = "interrupted" if isinstance(error, KeyboardInterrupt) else f"{type(error).__name__}: {error}"
            self._post(end_message(self._run, self._last, "failed", reason))
        deadline_s = time.monotonic() + LAST_WORDS_S
        for courier in self._couriers:
            courier.close(max(deadline_s - time.monotonic(), 0.0))

    def __call__(self, progress: Progress) -> None:
        """Hears where the run stands; returns at once."""
        if not self._couriers:
            return
        self._last = progress
        best = progress.best
        elite = best.candidate.id if best else ""
        if best is not None and elite != self._elite and self._elite is not None and best.candidate.mutator != "seed":
            self._post(elite_message(self._run, progress, self._elite))
        self._elite = elite
        if progress.stop and not self._is_over:
            self._is_over = True
            self._post(end_message(self._run, progress, progress.stop, progress.reason))

    def _post(self, message: Message) -> None:
        for courier in self._couriers:
            courier.post(message)


def elite_message(run: Run, progress: Progress, previous: str) -> Message:
    """What is told of a new best; `previous` is the id of the one before, or empty."""
    best = progress.best
    assert best is not None
    text = f"{run.name}: new best {speedup_text(best)} on {run.problem_id} ({run.device}), {_so_far(progress)}"
    return {**_message("elite", text, run, progress), "previous": previous or None}


def end_message(run: Run, progress: Progress | None, stop: str, reason: str) -> Message:
    """What is told of the end: `end`, or `failure` where the search could not do its work."""
    event = "failure" if stop in (*FAILURES, "failed") else "end"
    best = f"best {speedup_text(progress.best)}" if progress and progress.best else "no correct kernel"
    told = f"{best} on {run.problem_id} ({run.device}), {_so_far(progress)}" if progress else run.problem_id
    text = f"{run.name}: {'failed, ' if event == 'failure' else ''}{reason}; {told}"
    return {**_message(event, text, run, progress), "stop": stop, "reason": one_line(reason, TEXT_LIMIT)}


def _so_far(progress: Progress) -> str:
    money = f", ${progress.usd:.4f}" if progress.usd else ""
    count = f"{progress.evaluations} evaluation{'s' * (progress.evaluations != 1)}"
    return f"{count} in {duration_text(progress.elapsed_s)}{money}"


def _message(event: str, text: str, run: Run, progress: Progress | None) -> Message:
    """Fields that every message has. A candidate's own words stand in `rationale` only, never in `text`."""
    text = one_line(text, TEXT_LIMIT).translate(HARMLESS)
    message: Message = {
        "event": event, "text": text, "content": text, "at": utc_now(), "run": run.name, "run_id": run.id,
        "problem": run.problem_id, "backend": run.backend, "device": run.device,
    }  # fmt: skip
    if progress is None:
        return message
    return {
        **message,
        "evaluations": progress.evaluations,
        "attempts": progress.attempts,
        "verdicts": dict(progress.verdicts),
        "elapsed_s": round(progress.elapsed_s, 3),
        "usd": progress.usd,
        "best": _best(progress),
    }


def _best(progress: Progress) -> Message | None:
    if progress.best is None:
        return None
    candidate, evaluation = progress.best.candidate, progress.best.evaluation
    return {
        "id": candidate.id,
        "speedup": evaluation.speedup,
        "speedup_ci": evaluation.speedup_ci,
        "kernel_ms": evaluation.kernel_ms,
        "baseline": evaluation.baseline,
        "island": candidate.island,
        "mutator": one_line(candidate.mutator),
        "rationale": one_line(candidate.rationale).translate(HARMLESS),
    }


class Courier:
    """Delivers the newest message to one hook, one at a time, on a thread of its own."""

    def __init__(self, hook: Hook, warn: Warn) -> None:
        self._hook, self._warn = hook, warn
        self._lock = threading.Condition()
        self._waiting: Message | None = None
        self._is_closing = False
        self._is_warned = False
        self._thread = threading.Thread(target=self._work, name=f"notify {hook.name}", daemon=True)
        self._thread.start()

    def post(self, message: Message) -> None:
        """Takes a message in place of one that still waits; returns at once."""
        with self._lock:
            self._waiting = message
            self._lock.notify()

    def close(self, wait_s: float) -> None:
        """Delivers what waits, for `wait_s` seconds at most, and ends."""
        with self._lock:
            self._is_closing = True
            self._lock.notify()
        self._thread.join(wait_s)
        if self._thread.is_alive():
            self._hook.kill()
            self._fail(f"was not told of the end within {LAST_WORDS_S:.0f} s")

    def _work(self) -> None:
        while (message := self._next()) is not None:
            try:
                self._hook.deliver(message, self._is_overtaken)
            except NotDelivered as error:
                self._fail(str(error))
            except Exception as error:  # a hook must never end the search
                self._fail(f"failed with {type(error).__name__}")

    def _next(self) -> Message | None:
        with self._lock:
            self._lock.wait_for(lambda: self._waiting is not None or self._is_closing)
            message, self._waiting = self._waiting, None
            return message

    def _is_overtaken(self, wait_s: float) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: self._waiting is not None, wait_s)

    def _fail(self, reason: str) -> None:
        log.info("notification failed: %s %s", self._hook.name, reason)
        if not self._is_warned:
            self._is_warned = True
            self._warn(f"the notification {self._hook.name} {reason}; the search goes on, this is said once")


@dataclass(slots=True)
class CommandHook:
    """Runs a program in a session of its own, with the message on its standard input."""

    words: list[str]
    environment: dict[str, str]
    limit_s: float = COMMAND_S
    name: str = "command"
    process: subprocess.Popen[str] | None = None

    def deliver(self, message: Message, is_overtaken: Callable[[float], bool]) -> None:
        """NotDelivered when it cannot be started, takes too long or exits with another code than 0."""
        with tempfile.TemporaryFile("w+", errors="replace") as said:
            try:
                self.process = subprocess.Popen(
                    self.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=self.environment,
                    text=True,
                    start_new_session=True,
                )
            except OSError as error:
                raise NotDelivered(f"could not be started: {error.strerror}") from error
            try:
                self.process.communicate(json.dumps(message), self.limit_s)
            except subprocess.TimeoutExpired as error:
                self.kill()
                raise NotDelivered(f"took longer than {self.limit_s:g} s and was ended") from error
            if self.process.returncode != 0:
                said.seek(0)
                raise NotDelivered(f"exited with {self.process.returncode}: {one_line(said.read(2_000)) or 'no words'}")

    def kill(self) -> None:
        """Ends a program that still runs, with what it started in its session."""
        if self.process is not None and self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def scrubbed(environment: Mapping[str, str], keys: set[str]) -> dict[str, str]:
    """The environment without what looks like a key, a token or an address with a password, and without `keys`."""
    return {
        name: value
        for name, value in environment.items()
        if name not in keys and name != URL_VARIABLE and not SECRET_NAME.search(name) and not SECRET_VALUE.search(value)
    }


@dataclass(slots=True)
class WebHook:
    """Posts the message as JSON, and tries again after failures that may pass."""

    url: str
    reply_s: float = REPLY_S
    waits_s: tuple[float, ...] = WAITS_S
    name: str = "webhook"

    def deliver(self, message: Message, is_overtaken: Callable[[float], bool]) -> None:
        """NotDelivered when all tries failed; a newer message ends the tries without a word."""
        document = {**message, "allowed_mentions": {"parse": []}}
        for wait_s in (*self.waits_s, None):
            reason, asked_s = self._post(document)
            if not reason:
                return
            if asked_s is None or wait_s is None:
                raise NotDelivered(reason)
            if is_overtaken(max(wait_s, asked_s)):
                return

    def kill(self) -> None:
        """Nothing: what is on its way ends within `reply_s`, on a thread that nobody waits for."""

    def _post(self, document: Message) -> tuple[str, float | None]:
        """Why it was not taken, empty if it was; and the least seconds until another try, None where none helps."""
        import httpx

        host = urlsplit(self.url).hostname
        with _unlogged("httpx"):
            try:
                with httpx.stream("POST", self.url, json=document, timeout=self.reply_s) as answer:
                    status, asked_s = answer.status_code, _asked_s(answer.headers)  # the rest may never end
            except httpx.TransportError as error:
                return f"got no answer from {host} ({type(error).__name__})", 0.0
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                return f"could not ask {host} ({type(error).__name__})", None
        if 200 <= status < 300:
            return "", None
        may_pass = status >= 500 or status in (408, 425, 429)
        return f"was refused by {host} with {status}", asked_s if may_pass else None


def _asked_s(headers: Mapping[str, str]) -> float:
    text = headers.get("retry-after", "")
    return min(float(text), LONGEST_WAIT_S) if text.isdecimal() else 0.0


@contextmanager
def _unlogged(name: str) -> Iterator[None]:
    """Keeps this thread's records of that logger, which name addresses, out of all logs."""
    thread = threading.get_ident()

    def is_others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger = logging.getLogger(name)
    logger.addFilter(is_others)
    try:
        yield
    finally:
        logger.removeFilter(is_others)

"""A client for language models: any provider that litellm knows, any OpenAI-compatible server by `api_base`.

Every request is paid from a Ledger, recorded in a Journal before its reply is used, and retried here and nowhere else.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NoReturn

from mutators.dialogue import Journal, ModelError, Reply, Request
from mutators.faults import Exchange, Fault, no_key, redact, secrets_of
from mutators.ledger import (
    Certainty,
    Ledger,
    Prices,
    Reservation,
    believable,
    given_prices,
    listed_prices,
    worst_tokens,
)
from mutators.proposal import ProposalError, Usage
from mutators.wire import Answer, Wire

log = logging.getLogger(__name__)

RESERVED = re.compile(
    "model|messages|stream.*|n|best_of|max_tokens|max_completion_tokens|temperature|.*timeout|.*retries|retry_policy|"
    ".*fallback.*|mock_.*|cach.*|client|shared_session|callbacks|api_base|base_url|.*headers|service_tier|"
    "web_search_options|tools|functions|modalities|.*_cost_.*|.*(key|token|secret|password)"
)
"""Parameters that the client sets, that cost more than the ledger can foresee, or that hold credentials."""
POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """How a model is reached, and how hard it may be asked."""

    name: str
    """As litellm spells it: `openai/gpt-5`, `anthropic/...`; `openai/NAME` for any OpenAI-compatible server."""
    api_base: str = ""
    """Such as `http://127.0.0.1:8080/v1`; empty for the provider's own."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; empty: the provider's usual one, none with `api_base`."""
    price_in: float | None = None
    """USD per prompt token; None: as litellm's table has it."""
    price_out: float | None = None
    """USD per completion token."""
    max_tokens: int = 8192
    """Most completion tokens of a reply, reasoning included."""
    temperature: float | None = None
    timeout_s: float = 300
    """For one try."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_in_flight: int = 8
    retries: int = 3
    """Tries after the first, for faults that may pass."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Further parameters of the provider, such as `reasoning_effort`."""

    def __post_init__(self) -> None:
        given_prices(self.price_in, self.price_out)
        if not self.name:
            raise ProposalError("expected a model's name such as openai/gpt-5, found none")
        if self.api_key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,80}", self.api_key_env):
            raise ProposalError(f"api_key_env of {self.name} must be the name of an environment variable, not a key")
        if names := _reserved(self.parameters):
            raise ProposalError(
                f"parameters of {self.name} may not hold {names}: the client sets what is allowed there"
            )
        for name in ("max_tokens", "timeout_s", "max_in_flight", "requests_per_minute", "tokens_per_minute"):
            if (value := getattr(self, name)) is not None and not value > 0:
                raise ProposalError(f"{name} of {self.name} must be above 0, found {value}")


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """How faults are met."""

    backoff_s: float = 1.0
    """Before the first retry; doubles, with jitter."""
    longest_backoff_s: float = 60.0
    longest_retry_after_s: float = 120.0
    """A server that asks for a longer pause is asked again after this one."""
    deadline_s: float = 900.0
    """For all tries of one request, counted from the first."""
    reply_chars: int = 1_000_000
    """A longer reply is refused."""


class Bucket:
    """A token bucket that holds one second's worth and may go into debt: `take` says how long to wait."""

    def __init__(self, per_minute: float | None) -> None:
        self._rate = (per_minute or 0.0) / 60
        self._size = max(1.0, self._rate)
        self._level, self._at = self._size, time.monotonic()
        self._lock = threading.Lock()

    def take(self, amount: float) -> float:
        """Takes `amount` out; seconds until it is covered."""
        if not self._rate:
            return 0.0
        with self._lock:
            now = time.monotonic()
            self._level = min(self._size, self._level + (now - self._at) * self._rate) - amount
            self._at = now
            return max(0.0, -self._level / self._rate)

    def give_back(self, amount: float) -> None:
        """Puts back what was taken and not needed."""
        with self._lock:
            self._level = min(self._size, self._level + amount)


class Lane:
    """What all requests to one model share: places in flight, rates, and a pause that the server asked for."""

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.places = threading.Semaphore(spec.max_in_flight)
        self.requests, self.tokens = Bucket(spec.requests_per_minute), Bucket(spec.tokens_per_minute)
        self.not_before = 0.0
        """On the monotonic clock."""
        self.has_warned = False

    def key(self) -> str:
        """The key, read now. Empty: litellm takes the provider's usual one. ModelError where it is not set."""
        if not self.spec.api_key_env:
            return "none" if self.spec.api_base else ""  # never another provider's key to a server of the user's
        key = os.environ.get(self.spec.api_key_env, "").strip()
        if not key:
            raise ModelError("auth", no_key(self.spec.name, [self.spec.api_key_env]))
        return key

    def prices(self, prompt_tokens: int) -> Prices:
        """The user's prices, where not given the listed ones."""
        given = given_prices(self.spec.price_in, self.spec.price_out)
        if given.is_known:
            return given
        listed = listed_prices(self.spec.name, prompt_tokens)
        return Prices(
            listed.prompt_pico if given.prompt_pico is None else given.prompt_pico,
            listed.completion_pico if given.completion_pico is None else given.completion_pico,
        )


@dataclass(slots=True)
class _Talk:
    """One request on its way."""

    lane: Lane
    request: Request
    key: str
    prices: Prices
    usage: Usage
    began: float = 0.0
    """When the first try began, on the monotonic clock."""
    tries: int = 0
    is_open: bool = False  # recorded as asked


class Client:
    """Answers requests to the models of `specs`; several threads may ask at once. A Model."""

    name = "llm"

    def __init__(
        self,
        specs: Iterable[ModelSpec],
        ledger: Ledger,
        journal: Journal,
        options: ClientOptions = ClientOptions(),
    ) -> None:
        self.ledger, self.options = ledger, options
        self._journal = journal
        self._lanes = {spec.name: Lane(spec) for spec in specs}
        self._wire = Wire()
        self._stop = threading.Event()
        self._random = Random()  # jitter only; changes no result

    def ask(self, request: Request) -> Reply:
        """The recorded reply, or else a paid one, once it is recorded. Raises ModelError."""
        recorded = self._journal.reply(request.number, request.turn)
        if recorded is not None:
            return recorded
        talk = self._talk(request)
        with talk.lane.places:
            return self._converse(talk)

    def cancel(self) -> None:
        """Ends everything at once: all waiting threads get a ModelError of kind `cancelled`, later ones too."""
        self._stop.set()
        self._wire.cancel()
        for lane in self._lanes.values():
            lane.places.release(10_000)

    def close(self) -> None:
        """Cancels and leaves no thread and no connection."""
        self.cancel()
        self._wire.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _talk(self, request: Request) -> _Talk:
        lane = self._lanes.get(request.model)
        if lane is None:
            raise ModelError("bad_request", f"no model {request.model}, known are {', '.join(sorted(self._lanes))}")
        parameters = {**lane.spec.parameters, **request.parameters}
        if names := _reserved(parameters):
            raise ModelError("bad_request", f"parameters of a request may not hold {names}")
        key = lane.key()
        secrets = secrets_of(key)
        messages = (
            dataclasses.replace(message, content=redact(message.content, secrets)) for message in request.messages
        )
        ours = dataclasses.replace(
            request,
            messages=tuple(messages),
            max_tokens=min(request.max_tokens, lane.spec.max_tokens),
            temperature=lane.spec.temperature if request.temperature is None else request.temperature,
            parameters=parameters,
        )
        prices = lane.prices(worst_tokens(ours)[0])
        return _Talk(lane, ours, key, prices, Usage(request.model, is_priced=prices.is_known))

    def _converse(self, talk: _Talk) -> Reply:
        try:
            while (reply := self._attempt(talk)) is None:
                pass
        except ModelError as error:
            if talk.is_open:
                self._journal.fail(talk.request, error)
            raise
        self._journal.close(talk.request, reply)
        return reply

    def _attempt(self, talk: _Talk) -> Reply | None:
        """One try: its reply, or None when there may be another. Raises ModelError when there may not."""
        share = self._wait_for_turn(talk)
        reservation = self._reserve(talk)
        try:
            self._record_intent(talk, reservation)
        except BaseException:
            self.ledger.release(reservation)
            raise
        began = time.monotonic()
        outcome = self._send(talk, reservation, began)
        latency_s = time.monotonic() - began
        if isinstance(outcome, Answer):
            prompt_tokens, completion_tokens, certainty = _charged(talk, outcome, reservation)
            talk.lane.tokens.give_back(share - prompt_tokens - completion_tokens)
            usage = Usage("", prompt_tokens, completion_tokens, latency_s=latency_s)
            talk.usage = _sum(talk.usage, self.ledger.settle(reservation, usage, certainty))
            return self._reply(talk, outcome)
        if outcome.may_be_charged:
            self._charge_worst(talk, reservation, latency_s)
        else:
            self.ledger.release(reservation)
        self._rest(talk, outcome)
        return None

    def _send(self, talk: _Talk, reservation: Reservation, now: float) -> Answer | Fault:
        talk.began = talk.began or now
        talk.tries += 1
        left_s = talk.began + self.options.deadline_s - now
        try:
            return self._wire.send(_call(talk), talk.key, max(0.01, min(talk.lane.spec.timeout_s, left_s)), Exchange())
        except BaseException:
            self._charge_worst(talk, reservation, 0.0)
            raise

    def _wait_for_turn(self, talk: _Talk) -> float:
        """Waits as rates and the server's pause demand; the tokens taken from the rate."""
        lane = talk.lane
        share = sum(len(message.content) for message in talk.request.messages) / 4 + talk.request.max_tokens
        self._sleep(talk, max(lane.requests.take(1), lane.tokens.take(share)))
        while (pause_s := lane.not_before - time.monotonic()) > 0:
            self._sleep(talk, pause_s)
        return share

    def _reserve(self, talk: _Talk) -> Reservation:
        """Sets the money aside, waiting for requests in flight to give theirs back where that can help."""
        while True:
            try:
                return self.ledger.reserve(talk.request, talk.prices)
            except ModelError as refusal:
                if not self.ledger.may_fit_later(talk.request, talk.prices):
                    self._give_up(talk, Fault("budget", refusal.reason))
            self._sleep(talk, POLL_S)

    def _record_intent(self, talk: _Talk, reservation: Reservation) -> None:
        """Before the first try, and again when an earlier try may have cost something, with the larger worst case."""
        worst_usd = reservation.worst_usd
        if not talk.is_open or talk.usage.cost_usd:
            self._journal.open(talk.request, None if worst_usd is None else worst_usd + talk.usage.cost_usd)
            talk.is_open = True

    def _charge_worst(self, talk: _Talk, reservation: Reservation, latency_s: float) -> None:
        talk.usage = _sum(talk.usage, self.ledger.settle_worst(reservation, latency_s))

    def _rest(self, talk: _Talk, fault: Fault) -> None:
        """Sleeps before the next try, or gives up where there is none."""
        spec, options = talk.lane.spec, self.options
        asked_s = min(fault.retry_after_s, options.longest_retry_after_s)
        if asked_s:
            talk.lane.not_before = max(talk.lane.not_before, time.monotonic() + asked_s)
        if not fault.may_retry or talk.tries > spec.retries:
            self._give_up(talk, fault)
        backoff_s = min(options.backoff_s * 2 ** (talk.tries - 1), options.longest_backoff_s)
        pause_s = asked_s + backoff_s * (0.5 + self._random.random() / 2)
        if time.monotonic() + pause_s > talk.began + options.deadline_s:
            self._give_up(talk, fault)
        log.info("model retried model=%s kind=%s tries=%d pause_s=%.2f", spec.name, fault.kind, talk.tries, pause_s)
        self._sleep(talk, pause_s)

    def _sleep(self, talk: _Talk, seconds: float) -> None:
        if self._stop.wait(seconds) if seconds > 0 else self._stop.is_set():
            self._give_up(talk, Fault("cancelled", "the run stops"))

    def _give_up(self, talk: _Talk, fault: Fault) -> NoReturn:
        tries = f" (tried {talk.tries} times)" if talk.tries > 1 else ""
        log.info("model failed model=%s kind=%s tries=%d", talk.request.model, fault.kind, talk.tries)
        raise ModelError(fault.kind, fault.reason + tries, talk.usage)

    def _reply(self, talk: _Talk, answer: Answer) -> Reply:
        """The reply without secrets. ModelError of kind `bad_reply` where it is too long."""
        limit = self.options.reply_chars
        if len(answer.text) > limit:
            reason = f"{talk.request.model} sent {len(answer.text):,} characters, expected at most {limit:,}"
            self._give_up(talk, Fault("bad_reply", reason))
        secrets = secrets_of(talk.key)
        text, reasoning = (redact(part, secrets) for part in (answer.text, answer.reasoning[:limit]))
        return Reply(text, reasoning, answer.finish_reason or "stop", talk.usage)


def _reserved(parameters: dict[str, Any]) -> str:
    """The names among the parameters, and among those of `extra_body`, that are not the user's to set."""
    extra = parameters.get("extra_body")
    names = {*parameters, *(extra if isinstance(extra, dict) else ())}
    return ", ".join(sorted(name for name in names if RESERVED.fullmatch(str(name))))


def _call(talk: _Talk) -> dict[str, Any]:
    """litellm's arguments, without the key."""
    spec, request = talk.lane.spec, talk.request
    where = {"api_base": spec.api_base} if spec.api_base else {}
    if request.wants == "vectors":
        texts = [message.content for message in request.messages]
        plain = {"model": request.model, "input": texts, "encoding_format": "float", "timeout": spec.timeout_s}
        return {**request.parameters, **plain, **where}
    call: dict[str, Any] = {
        **where,
        **request.parameters,
        "model": request.model,
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "max_tokens": request.max_tokens,
        "timeout": spec.timeout_s,
    }
    if request.temperature is not None:
        call["temperature"] = request.temperature
    return call


def _charged(talk: _Talk, answer: Answer, reservation: Reservation) -> tuple[int, int, Certainty]:
    """The tokens to charge: the provider's counts where they can be true, else bounds of them."""
    said = answer.prompt_tokens, answer.completion_tokens
    is_text = talk.request.wants == "text"
    received = len(answer.text.encode()) + len(answer.reasoning.encode()) if is_text else 0
    tokens = believable(reservation, *said, received, answer.finish_reason == "length")
    if tokens[2] != "reported":
        log.log(
            logging.INFO if talk.lane.has_warned else logging.WARNING,
            "usage estimated model=%s prompt_tokens=%.40r completion_tokens=%.40r received_bytes=%d",
            talk.request.model, *said, received,
        )  # fmt: skip
        talk.lane.has_warned = True  # once a run is enough: many local servers never say
    return tokens


def _sum(one: Usage, other: Usage) -> Usage:
    return dataclasses.replace(
        one,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
        cost_usd=one.cost_usd + other.cost_usd,
        latency_s=one.latency_s + other.latency_s,
        is_priced=one.is_priced and other.is_priced,
    )

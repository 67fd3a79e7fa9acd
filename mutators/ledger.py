"""What models cost: Prices, and a Ledger that no run can overdraw. Money is whole picodollars (1e-12 USD)."""

from __future__ import annotations

import dataclasses
import json
import re
import threading
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Any, Literal

from mutators.dialogue import ModelError, Request
from mutators.proposal import ProposalError, Usage

PICO = 10**12
MESSAGE_TOKENS = 16
"""Most tokens that a chat template puts around one message (role names and markers; 4 to 8 are usual)."""
TEMPLATE_TOKENS = 256
"""Most tokens that a chat template adds to a conversation (dates, default system lines; under 100 are usual)."""
DEAREST_USD_PER_TOKEN = 0.01
TYPICAL_COMPLETION = 1_500
"""Completion tokens of a usual reply, for estimates: a kernel of 4 KB and a few sentences."""
LONGEST_TOKEN_BYTES = 128
"""No token of a common vocabulary holds more (runs of spaces do)."""
ABSURD = 4
"""A count of tokens this many times above its bound is wrong; up to there, a hidden prompt or hidden reasoning."""

Certainty = Literal["reported", "estimated", "uncertain"]
"""How a charge is known: by the provider's own usage, from the size of the reply, or as the worst case."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Picodollars per prompt token and per completion token; None where not known."""

    prompt_pico: int | None = None
    completion_pico: int | None = None

    @property
    def is_known(self) -> bool:
        return self.prompt_pico is not None and self.completion_pico is not None

    def cost_pico(self, prompt_tokens: int, completion_tokens: int) -> int | None:
        """What so many tokens cost, None where a price is not known."""
        if self.prompt_pico is None or self.completion_pico is None:
            return None
        return self.prompt_pico * prompt_tokens + self.completion_pico * completion_tokens


def to_pico(usd: float | Decimal) -> int:
    """Picodollars, rounded up; exact for every price and sum that is written with at most 12 decimals."""
    return int((Decimal(str(usd)) * PICO).to_integral_value(ROUND_CEILING))


def given_prices(price_in: float | None, price_out: float | None) -> Prices:
    """Prices in USD per token as a user gave them. ProposalError where one cannot be meant so."""
    for price in (price_in, price_out):
        if price is not None and not 0 <= price <= DEAREST_USD_PER_TOKEN:
            raise ProposalError(
                f"expected a price in USD per token from 0 to {DEAREST_USD_PER_TOKEN}, found {price}; "
                f"$3 per million tokens are 3e-6"
            )
    return Prices(*(None if price is None else to_pico(price) for price in (price_in, price_out)))


def listed_prices(model: str, prompt_tokens: int = 0) -> Prices:
    """The prices of litellm's own table (no network) for a prompt of that size, None for what it does not hold.

    The name decides, not the server: a listed model behind another `api_base` counts at its listed price.
    """
    from mutators.wire import load_litellm

    table: dict[str, dict[str, Any]] = load_litellm().model_cost
    provider, _, name = model.partition("/")
    entry = table.get(model)
    if entry is None and name and str(table.get(name, {}).get("litellm_provider", "")).startswith(provider):
        entry = table[name]
    if entry is None or any(str(key).endswith(("_per_second", "_per_request")) for key in entry):
        return Prices()
    return Prices(_dearest(entry, "input", prompt_tokens), _dearest(entry, "output", prompt_tokens))


def _dearest(entry: dict[str, Any], side: str, prompt_tokens: int) -> int | None:
    """The highest price per token that a prompt of that size can meet: long prompts and reasoning may cost more."""
    found = []
    for key, price in entry.items():
        tier = re.fullmatch(rf"{side}_cost_per_(?:reasoning_)?token(?:_above_(\d+)k_tokens)?", key)
        if tier and isinstance(price, int | float) and int(tier[1] or 0) * 1_000 <= prompt_tokens:
            found.append(to_pico(price))
    return max(found) if found and f"{side}_cost_per_token" in entry else None


def worst_tokens(request: Request) -> tuple[int, int]:
    """Upper bounds of prompt and completion tokens; what a chat template adds comes on top of the text's.

    A byte-level tokenizer makes at least one byte of the text into a token, so the UTF-8 length bounds the number of
    tokens whatever the vocabulary. Some tokenizers normalise the text first, and NFKC can make it longer (U+FDFA:
    3 bytes become 33), so the longer of the two counts.
    """
    text = sum(_byte_bound(message.content) for message in request.messages)
    parameters = len(json.dumps(request.parameters, default=str)) if request.parameters else 0
    around = MESSAGE_TOKENS * len(request.messages) + TEMPLATE_TOKENS
    return text + parameters + around, request.max_tokens


def _byte_bound(text: str) -> int:
    if text.isascii():
        return len(text)
    return max(len(form.encode(errors="replace")) for form in (text, unicodedata.normalize("NFKC", text)))


@dataclass(frozen=True, slots=True)
class Expense:
    """Something paid, and for whom."""

    usage: Usage
    operator: str = ""
    island: int = 0
    certainty: Certainty = "reported"


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """Money and tokens set aside for one request over HTTP, at its worst case."""

    request: Request
    prices: Prices
    prompt_tokens: int
    completion_tokens: int
    worst_pico: int | None

    @property
    def tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens

    @property
    def worst_usd(self) -> float | None:
        return None if self.worst_pico is None else self.worst_pico / PICO


def believable(
    reservation: Reservation, prompt_said: Any, completion_said: Any, received_bytes: int, is_cut: bool
) -> tuple[int, int, Certainty]:
    """The tokens of a reply to charge: as the provider counts where that can be true, else an upper bound.

    A count must be a whole number, large enough for the bytes that it stands for and not absurdly large. In place of
    a wrong completion count stand the bytes received; or all that was allowed, where that is less, where the reply
    was cut, or where the wrong count was a large one.
    """
    prompt, completion = reservation.prompt_tokens, reservation.completion_tokens
    asked_bytes = sum(len(message.content.encode(errors="replace")) for message in reservation.request.messages)
    is_prompt_true = _can_be_true(prompt_said, asked_bytes, ABSURD * prompt)
    is_completion_true = _can_be_true(completion_said, received_bytes, max(ABSURD * completion, received_bytes))
    is_large = isinstance(completion_said, int | float) and completion_said > completion
    bound = completion if is_cut or is_large else min(completion, received_bytes)
    return (
        prompt_said if is_prompt_true else prompt,
        completion_said if is_completion_true else bound,
        "reported" if is_prompt_true and is_completion_true else "estimated",
    )


def _can_be_true(count: Any, content_bytes: int, most: int) -> bool:
    is_whole = isinstance(count, int) and not isinstance(count, bool)
    return is_whole and content_bytes / LONGEST_TOKEN_BYTES <= count <= most


@dataclass(slots=True)
class _Sum:
    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    pico: int = 0
    is_priced: bool = True
    by_certainty: dict[str, int] = field(default_factory=lambda: {"reported": 0, "estimated": 0, "uncertain": 0})

    def add(self, usage: Usage, pico: int, certainty: Certainty) -> None:
        self.requests += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.pico += pico
        self.is_priced &= usage.is_priced
        self.by_certainty[certainty] += pico

    def as_dict(self) -> dict[str, Any]:
        """JSON: counts, `cost_usd`, and how much of it is reported, estimated or uncertain."""
        parts = {f"{name}_usd": pico / PICO for name, pico in self.by_certainty.items()}
        return {
            "requests": self.requests, "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens, "cost_usd": self.pico / PICO,
            "is_priced": self.is_priced, **parts,
        }  # fmt: skip


class Ledger:
    """Counts what is spent and what requests in flight may cost at worst, and refuses what might pass a cap.

    Thread-safe. `spent` are the expenses of earlier processes of the run.
    """

    def __init__(
        self, max_usd: float | None = None, max_tokens: int | None = None, spent: Iterable[Expense] = ()
    ) -> None:
        self.max_usd, self.max_tokens = max_usd, max_tokens
        self._max_pico = None if max_usd is None else to_pico(max_usd)
        self._lock = threading.Lock()
        self._open: dict[int, Reservation] = {}
        self._total = _Sum()
        self._by: dict[str, dict[str, _Sum]] = {"by_model": {}, "by_operator": {}, "by_island": {}}
        for expense in spent:
            self._add(expense)

    @property
    def spent_pico(self) -> int:
        """Picodollars settled so far, uncertain ones included."""
        with self._lock:
            return self._total.pico

    @property
    def spent_usd(self) -> float:
        return self.spent_pico / PICO

    def reserve(self, request: Request, prices: Prices) -> Reservation:
        """Sets the worst case of one request aside. ModelError of kind `budget` where it might pass a cap."""
        prompt_tokens, completion_tokens = worst_tokens(request)
        worst_pico = prices.cost_pico(prompt_tokens, completion_tokens)
        reservation = Reservation(request, prices, prompt_tokens, completion_tokens, worst_pico)
        with self._lock:
            reason = self._why_not(reservation, self._open.values())
            if reason:
                raise ModelError("budget", reason)
            self._open[id(reservation)] = reservation
        return reservation

    def may_fit_later(self, request: Request, prices: Prices) -> bool:
        """Whether it would fit if nothing were in flight: what is in flight mostly costs less than was set aside."""
        prompt_tokens, completion_tokens = worst_tokens(request)
        worst_pico = prices.cost_pico(prompt_tokens, completion_tokens)
        with self._lock:
            return not self._why_not(Reservation(request, prices, prompt_tokens, completion_tokens, worst_pico), ())

    def settle(self, reservation: Reservation, usage: Usage, certainty: Certainty = "reported") -> Usage:
        """Charges the tokens of `usage` at the reserved prices; gives the usage with its cost.

        Settling or releasing a reservation again does nothing, so that no path can count one twice.
        """
        pico = reservation.prices.cost_pico(usage.prompt_tokens, usage.completion_tokens)
        paid = dataclasses.replace(
            usage,
            model=reservation.request.model,
            cost_usd=(pico or 0) / PICO,
            is_priced=pico is not None,
        )
        with self._lock:
            if self._open.pop(id(reservation), None) is not None:
                self._add(Expense(paid, reservation.request.operator, reservation.request.island, certainty))
        return paid

    def settle_worst(self, reservation: Reservation, latency_s: float = 0.0) -> Usage:
        """Charges the worst case, for a request whose outcome is not known: the provider may have charged it."""
        usage = Usage("", reservation.prompt_tokens, reservation.completion_tokens, latency_s=latency_s)
        return self.settle(reservation, usage, "uncertain")

    def release(self, reservation: Reservation) -> None:
        """Gives back what was set aside: the request cost nothing."""
        with self._lock:
            self._open.pop(id(reservation), None)

    def summary(self) -> dict[str, Any]:
        """JSON: totals, caps, what is in flight, and the same totals `by_model`, `by_operator` and `by_island`."""
        with self._lock:
            flying = [reservation.worst_pico or 0 for reservation in self._open.values()]
            parts = {
                kind: {name: one.as_dict() for name, one in sorted(sums.items())} for kind, sums in self._by.items()
            }
            return {
                **self._total.as_dict(), "max_usd": self.max_usd, "max_tokens": self.max_tokens,
                "in_flight": len(flying), "in_flight_usd": sum(flying) / PICO, **parts,
            }  # fmt: skip

    def _why_not(self, wanted: Reservation, flying: Iterable[Reservation]) -> str:
        """Why the worst case does not fit beside what is spent and in flight; empty where it does."""
        flying = tuple(flying)
        model = wanted.request.model
        if self._max_pico is not None:
            if wanted.worst_pico is None:
                if self.max_tokens is None:
                    return f"unknown price of {model}: give --price or cap by --max-tokens"
            else:
                used, in_flight = self._total.pico, sum(one.worst_pico or 0 for one in flying)
                if used + in_flight + wanted.worst_pico > self._max_pico:
                    worst, spent, fly = (_usd(pico) for pico in (wanted.worst_pico, used, in_flight))
                    cap = _usd(self._max_pico)
                    return f"asking {model} may cost {worst}; {spent} spent and {fly} in flight, of {cap} (--max-usd)"
        if self.max_tokens is not None:
            used, in_flight = (
                self._total.prompt_tokens + self._total.completion_tokens,
                sum(one.tokens for one in flying),
            )
            if used + in_flight + wanted.tokens > self.max_tokens:
                return (
                    f"asking {model} may take {wanted.tokens} tokens; {used} spent and {in_flight} in flight, "
                    f"of {self.max_tokens} (--max-tokens)"
                )
        return ""

    def _add(self, expense: Expense) -> None:
        usage = expense.usage
        pico = round(Decimal(str(usage.cost_usd)) * PICO)
        names = {"by_model": usage.model, "by_operator": expense.operator, "by_island": str(expense.island)}
        for one in (self._total, *(self._by[kind].setdefault(name, _Sum()) for kind, name in names.items())):
            one.add(usage, pico, expense.certainty)


def _usd(pico: int) -> str:
    return f"${Decimal(pico) / PICO:.6f}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """What requests may cost, before any is sent; USD are None where a price is not known."""

    model: str
    requests: int
    low_tokens: int
    high_tokens: int
    low_usd: float | None
    high_usd: float | None

    def sentence(self) -> str:
        """For people."""
        start = f"{self.requests} requests to {self.model}: {self.low_tokens:,} to {self.high_tokens:,} tokens"
        if self.low_usd is None or self.high_usd is None:
            return f"{start}, price unknown (give --price, or cap by --max-tokens)"
        return f"{start}, ${self.low_usd:.2f} to ${self.high_usd:.2f}"


def estimate(
    model: str, prices: Prices, requests: int, prompt_bytes: int, max_tokens: int, completion: int = TYPICAL_COMPLETION
) -> Estimate:
    """Low: 4 bytes of prompt a token and a usual completion. High: the worst case that the ledger sets aside."""
    low = prompt_bytes // 4, min(completion, max_tokens)
    high = prompt_bytes + 2 * MESSAGE_TOKENS + TEMPLATE_TOKENS, max_tokens
    costs = [prices.cost_pico(*tokens) for tokens in (low, high)]
    low_usd, high_usd = (None if pico is None else pico * requests / PICO for pico in costs)
    return Estimate(model, requests, sum(low) * requests, sum(high) * requests, low_usd, high_usd)

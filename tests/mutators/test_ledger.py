"""Prices, caps and sums."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mutators.dialogue import Message, ModelError, Request
from mutators.ledger import (
    MESSAGE_TOKENS,
    TEMPLATE_TOKENS,
    Expense,
    Ledger,
    Prices,
    believable,
    estimate,
    given_prices,
    listed_prices,
    to_pico,
    worst_tokens,
)
from mutators.proposal import ProposalError, Usage
from mutators.wire import load_litellm

PRICES = given_prices(3e-6, 1.5e-5)
UNKNOWN = Prices()


def make_request(text: str = "Make it faster.", model: str = "a/b", **changes) -> Request:
    changes = {"operator": "diff", "max_tokens": 1_000, **changes}
    return Request(0, 0, model=model, messages=(Message("user", text),), **changes)


def refusal(ledger: Ledger, request: Request, prices: Prices) -> str:
    with pytest.raises(ModelError) as caught:
        ledger.reserve(request, prices)
    assert caught.value.kind == "budget"
    return caught.value.reason


def worst_usd(request: Request) -> float:
    return PRICES.cost_pico(*worst_tokens(request)) / 1e12


def test_prices_become_whole_picodollars_without_loss():
    assert given_prices(1.5e-7, 3.75e-8) == Prices(150_000, 37_500)
    assert to_pico(0.1) + to_pico(0.2) == to_pico(0.3)
    assert to_pico(1e-13) == 1, "rounded up, never down"


def test_a_price_per_million_tokens_is_told_from_one_per_token():
    with pytest.raises(ProposalError, match="3e-6"):
        given_prices(3.0, 15.0)
    with pytest.raises(ProposalError):
        given_prices(-1e-6, None)


@pytest.mark.parametrize(
    ("model", "key"), [("openai/gpt-4o-mini", "gpt-4o-mini"), ("gpt-4o-mini", "gpt-4o-mini"),
                       ("gemini/gemini-2.5-pro", "gemini/gemini-2.5-pro")]
)  # fmt: skip
def test_listed_prices_are_those_of_litellms_table(model, key):
    entry = load_litellm().model_cost[key]
    prices = listed_prices(model)
    assert prices == given_prices(entry["input_cost_per_token"], entry["output_cost_per_token"])


def test_a_long_prompt_is_priced_at_its_own_tier():
    short, long = listed_prices("gemini/gemini-2.5-pro", 1_000), listed_prices("gemini/gemini-2.5-pro", 300_000)
    assert long.prompt_pico > short.prompt_pico and long.completion_pico > short.completion_pico


@pytest.mark.parametrize("model", ["openai/no-such-model", "nobody/gpt-4o-mini", "gpt-4o-mini/x", "", "/", "whisper-1"])
def test_a_price_that_is_not_listed_is_unknown_and_not_free(model):
    assert not listed_prices(model).is_known


@pytest.fixture(scope="module")
def tokenizers() -> list[Callable[[str], int]]:
    """Real tokenizers that litellm carries: two byte-level ones and one that normalises by NFKC first."""
    import tokenizers

    folder = Path(load_litellm().__file__).parent / "litellm_core_utils" / "tokenizers"
    openai = load_litellm().encoding  # cl100k_base
    others = [
        tokenizers.Tokenizer.from_file(str(folder / f"{name}_tokenizer.json")) for name in ("anthropic", "deepseek")
    ]
    return [
        lambda text: len(openai.encode(text, disallowed_special=())),
        *(lambda text, one=one: len(one.encode(text).ids) for one in others),
    ]


@given(st.text(max_size=200) | st.text("\ufdfa\u3300\ufb03 \x00\U0001f680e\u0301", max_size=200))
def test_no_text_has_more_tokens_than_are_set_aside(tokenizers, text):
    bound, _ = worst_tokens(make_request(text))
    for count in tokenizers:
        assert count(text) <= bound - MESSAGE_TOKENS - TEMPLATE_TOKENS + 1  # some begin every text with a mark


def test_parameters_count_as_prompt():
    schema = {"response_format": {"type": "json_schema", "schema": "x" * 5_000}}
    assert worst_tokens(make_request(parameters=schema))[0] > worst_tokens(make_request())[0] + 5_000


def test_a_cap_counts_what_is_spent_in_flight_and_asked_for():
    request = make_request()
    worst = worst_usd(request)
    ledger = Ledger(max_usd=2.5 * worst)
    first = ledger.reserve(request, PRICES)
    second = ledger.reserve(request, PRICES)
    assert "in flight" in refusal(ledger, request, PRICES)
    assert ledger.may_fit_later(request, PRICES)
    ledger.settle(first, Usage("", 10, 10))
    third = ledger.reserve(request, PRICES)
    ledger.settle_worst(second)
    ledger.settle_worst(third)
    assert not ledger.may_fit_later(request, PRICES)
    assert "spent" in refusal(ledger, request, PRICES)


def test_a_cap_may_be_met_to_the_picodollar_and_not_passed_by_one():
    request = make_request()
    pico = PRICES.cost_pico(*worst_tokens(request))
    Ledger(max_usd=pico / 1e12).reserve(request, PRICES)
    assert refusal(Ledger(max_usd=(pico - 1) / 1e12), request, PRICES)


def test_a_token_cap_works_without_prices():
    request = make_request()
    tokens = sum(worst_tokens(request))
    ledger = Ledger(max_tokens=2 * tokens)
    ledger.settle_worst(ledger.reserve(request, UNKNOWN))
    ledger.reserve(request, UNKNOWN)
    assert "--max-tokens" in refusal(ledger, request, UNKNOWN)


def test_an_unknown_price_is_refused_under_a_cap_in_dollars_unless_tokens_are_capped():
    reason = refusal(Ledger(max_usd=100), make_request(), UNKNOWN)
    assert reason == "unknown price of a/b: give --price or cap by --max-tokens"
    assert refusal(Ledger(max_usd=100), make_request(), Prices(prompt_pico=1))
    Ledger(max_usd=100, max_tokens=100_000).reserve(make_request(), UNKNOWN)


def test_an_unknown_price_is_said_in_the_usage_and_the_sums():
    ledger = Ledger()
    usage = ledger.settle(ledger.reserve(make_request(), UNKNOWN), Usage("", 10, 20))
    assert (usage.cost_usd, usage.is_priced) == (0.0, False)
    assert ledger.summary()["is_priced"] is False


def test_a_reservation_is_counted_once_however_often_it_is_closed():
    ledger = Ledger()
    reservation = ledger.reserve(make_request(), PRICES)
    ledger.settle(reservation, Usage("", 10, 20))
    spent = ledger.spent_pico
    ledger.settle_worst(reservation)
    ledger.release(reservation)
    assert ledger.spent_pico == spent == 10 * 3_000_000 + 20 * 15_000_000


def test_what_is_released_costs_nothing():
    ledger = Ledger(max_usd=worst_usd(make_request()))
    ledger.release(ledger.reserve(make_request(), PRICES))
    ledger.reserve(make_request(), PRICES)
    assert ledger.spent_usd == 0


def test_what_was_spent_earlier_counts_against_the_cap():
    usage = Usage("a/b", 100, 50, cost_usd=0.0123456)
    ledger = Ledger(max_usd=0.0123456, spent=[Expense(usage, "repair", 2)])
    assert ledger.spent_pico == 12_345_600_000
    assert refusal(ledger, make_request(), PRICES)
    assert ledger.summary()["by_operator"]["repair"]["requests"] == 1


def test_sums_stand_by_model_operator_island_and_certainty():
    ledger = Ledger()
    for model, operator, island in (("a", "diff", 0), ("a", "repair", 1), ("b", "diff", 1)):
        request = make_request(model=model, operator=operator, island=island)
        ledger.settle(ledger.reserve(request, PRICES), Usage("", 1_000, 100))
    ledger.settle(ledger.reserve(make_request(model="b"), PRICES), Usage("", 0, 100), "estimated")
    summary = ledger.summary()
    assert summary["by_model"]["a"]["cost_usd"] == pytest.approx(0.009)
    assert summary["by_operator"]["diff"]["requests"] == 3
    assert summary["by_island"]["1"]["prompt_tokens"] == 2_000
    assert (summary["cost_usd"], summary["estimated_usd"]) == (0.015, 0.0015)


def test_many_small_sums_stay_exact():
    ledger = Ledger()
    prices = given_prices(1e-7, 3.7e-8)
    for _ in range(1_000):
        ledger.settle(ledger.reserve(make_request(), prices), Usage("", 1, 1))
    assert ledger.spent_pico == 1_000 * (100_000 + 37_000)


def test_no_thread_slips_past_the_cap():
    request = make_request()
    worst = PRICES.cost_pico(*worst_tokens(request))
    ledger = Ledger(max_usd=50.5 * worst / 1e12)
    passed = []

    def spend(seed: int) -> None:
        random = Random(seed)
        for _ in range(60):
            try:
                reservation = ledger.reserve(request, PRICES)
            except ModelError:
                continue
            summary = ledger.summary()
            passed.append(summary["cost_usd"] + summary["in_flight_usd"])
            if random.random() < 0.3:
                ledger.release(reservation)
            else:
                ledger.settle_worst(reservation)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(spend, range(8)))
    assert max(passed) <= 50.5 * worst / 1e12
    assert ledger.spent_pico == 50 * worst
    assert ledger.summary()["in_flight"] == 0


@pytest.mark.parametrize(
    ("said", "received", "is_cut", "expected"),
    [
        ((20, 30), 100, False, (20, 30, "reported")),
        ((20, 0), 0, False, (20, 0, "reported")),
        ((20, 3_000), 0, False, (20, 3_000, "reported")),  # hidden reasoning, more than was allowed
        ((20, 400_000), 2_000_000, False, (20, 400_000, "reported")),  # the server kept no limit
        ((20, 4_001), 0, False, (20, 1_000, "estimated")),
        ((20, None), 100, False, (20, 100, "estimated")),
        ((20, None), 100, True, (20, 1_000, "estimated")),
        ((20, None), 5_000, False, (20, 1_000, "estimated")),
        ((20, 0), 1_000, False, (20, 1_000, "estimated")),
        ((0, 30), 100, False, (287, 30, "estimated")),
        ((True, 30), 100, False, (287, 30, "estimated")),
        ((10**20, 30), 100, False, (287, 30, "estimated")),
        (("20", 30.0), 100, False, (287, 100, "estimated")),
        ((float("nan"), -1), 100, False, (287, 100, "estimated")),
    ],
)
def test_counts_that_cannot_be_true_are_replaced_by_bounds(said, received, is_cut, expected):
    reservation = Ledger().reserve(make_request(), PRICES)
    assert believable(reservation, *said, received, is_cut) == expected


def test_an_estimate_says_low_and_high_or_that_the_price_is_unknown():
    known = estimate("a/b", PRICES, requests=100, prompt_bytes=20_000, max_tokens=8_192)
    assert known.low_usd == pytest.approx(100 * (5_000 * 3e-6 + 1_500 * 1.5e-5))
    assert known.high_usd == pytest.approx(100 * (20_288 * 3e-6 + 8_192 * 1.5e-5))
    assert "$3.75 to $18.37" in known.sentence()
    unknown = estimate("a/b", UNKNOWN, requests=100, prompt_bytes=20_000, max_tokens=8_192)
    assert unknown.high_usd is None and "price unknown" in unknown.sentence()
    assert unknown.high_tokens == known.high_tokens == 100 * (20_288 + 8_192)

"""The client, through litellm, against a real server on loopback."""

from __future__ import annotations

import dataclasses
import json
import logging
import socket
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest
from llm_makers import FAST, GOOD, KEY, MODEL, ask_error, make_client, make_request, make_spec, wait_until
from openai_server import PRICE_IN, PRICE_OUT, Act, OpenAIServer

from mutators.ledger import Ledger
from mutators.llm import Bucket, Client, ClientOptions, ModelSpec
from mutators.proposal import ProposalError

pytestmark = [  # pytest undoes the filters that the client and litellm set
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.filterwarnings("ignore:.*ReadOnly"),
]


def test_a_reply_comes_with_its_reasoning_usage_and_exact_cost(key, journal):
    acts = (Act("Here:\n```cpp\nint x;\n```\nand\n```cpp\nint y;\n```", reasoning="Vectors help.", finish="length"),)
    with OpenAIServer(acts=acts) as server, make_client(server, journal) as client:
        reply = client.ask(make_request(temperature=0.25, parameters={"top_p": 0.5}))
        assert (reply.text, reply.reasoning, reply.finish_reason) == (acts[0].text, "Vectors help.", "length")
        assert round(reply.usage.cost_usd * 1e12) == server.tally_pico == client.ledger.spent_pico > 0
        body = server.served[0].body
        assert (body["model"], body["temperature"], body["top_p"], body["max_tokens"]) == ("scripted", 0.25, 0.5, 500)
        assert server.served[0].key == f"Bearer {KEY}"
    assert journal.names() == ["open", "close"]
    assert journal.events[0]["worst_usd"] >= reply.usage.cost_usd


def test_a_recorded_reply_is_given_without_asking(key, journal):
    with OpenAIServer(acts=(GOOD,)) as server, make_client(server, journal) as client:
        first, second = client.ask(make_request()), client.ask(make_request())
        assert first == second
        assert server.begun == 1


def test_one_429_with_retry_after_costs_exactly_two_requests_and_the_pause_asked_for(key, journal):
    busy = Act(status=429, headers={"Retry-After": "0.3"})
    with OpenAIServer(acts=(busy, GOOD)) as server, make_client(server, journal) as client:
        client.ask(make_request(9))
        before = time.monotonic()
        server.choose = lambda _body, n: busy if n == 2 else GOOD
        client.ask(make_request())
        assert server.begun == 4
        assert time.monotonic() - before >= 0.3
    assert journal.names() == ["open", "close"] * 2


def test_a_pause_that_the_server_asks_for_holds_every_request_to_the_model(key, journal):
    acts = (Act(status=429, headers={"Retry-After": "1"}), GOOD)
    with OpenAIServer(acts=acts) as server, make_client(server, journal) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(client.ask, make_request(0))
        wait_until(lambda: server.now == 0 and server.begun == 1, 20)
        time.sleep(0.1)  # for the answer to arrive
        client.ask(make_request(1))
        assert server.begun_at[1] - server.begun_at[0] >= 0.9
        first.result()


@pytest.mark.parametrize("provider", ["anthropic", "groq", "mistral", "openrouter", "deepseek", "hosted_vllm"])
def test_other_providers_have_the_same_retries_accounts_and_bounds(key, journal, provider):
    """litellm sends each by a path of its own; the path that our session does not see would fail here."""
    name = f"{provider}/scripted"
    acts = (Act(status=429, headers={"Retry-After": "0.2"}), GOOD, Act("x" * 5_000_000), Act(manner="reset"))
    with (
        OpenAIServer(acts=acts) as server,
        Client([make_spec(server, name=name, retries=1)], Ledger(), journal, FAST) as client,
    ):
        before = time.monotonic()
        reply = client.ask(dataclasses.replace(make_request(), model=name))
        assert time.monotonic() - before > 0.2
        assert (reply.text, server.begun) == (GOOD.text, 2)
        assert round(reply.usage.cost_usd * 1e12) == server.tally_pico == client.ledger.spent_pico
        assert "more to come" in ask_error(client, dataclasses.replace(make_request(1), model=name)).reason
        assert ask_error(client, dataclasses.replace(make_request(2), model=name)).kind == "connection"
        assert server.begun == 5
        wait_until(lambda: server.now == 0)
        client.close()
        wait_until(lambda: server.connections == 0)


@pytest.mark.parametrize(
    ("act", "kind", "requests"),
    [
        (Act(status=400), "bad_request", 1),
        (Act(status=400, error="Blocked by the content management policy"), "content_filter", 1),
        (Act(status=401), "auth", 1),
        (Act(status=403), "auth", 1),
        (Act(status=404), "bad_request", 1),
        (Act(status=422), "bad_request", 1),
        (Act(status=429, error="You exceeded your current quota"), "rate_limit", 1),
        (Act(status=429), "rate_limit", 3),
        (Act(status=408), "timeout", 3),
        (Act(status=409), "server", 3),
        (Act(status=500), "server", 3),
        (Act(status=502), "server", 3),
        (Act(status=503, headers={"Retry-After": "0.01"}), "server", 3),
        (Act(manner="reset"), "connection", 3),
        (Act(manner="html"), "bad_reply", 1),
    ],
)
def test_every_fault_has_its_kind_its_number_of_requests_and_its_charge(key, journal, act, kind, requests):
    with OpenAIServer(acts=(act,)) as server, make_client(server, journal, retries=2) as client:
        error = ask_error(client, make_request())
        assert (error.kind, server.begun) == (kind, requests)
        uncertain = sum(one.worst_pico for one in server.served if one.certainty == "uncertain")
        assert client.ledger.spent_pico == uncertain == round(error.usage.cost_usd * 1e12)
        assert uncertain >= server.tally_pico
        assert client.ledger.summary()["in_flight"] == 0
    assert journal.names()[-1] == "fail"
    assert "Traceback" not in error.reason and len(error.reason) < 500 and "\n" not in error.reason


def test_a_model_that_hangs_is_left_after_its_time_and_charged_at_its_worst(key, journal):
    with OpenAIServer(acts=(Act(manner="hang"), GOOD)) as server:
        with make_client(server, journal, timeout_s=1.0) as client:
            reply = client.ask(make_request())
        worst, good = server.served
        assert round(reply.usage.cost_usd * 1e12) == client.ledger.spent_pico == worst.worst_pico + good.pico
    assert journal.names() == ["open", "open", "close"]
    first, second = (event["worst_usd"] for event in journal.events[:2])
    assert second == pytest.approx(2 * first), "killed now, the run would owe both tries"


def test_a_deadline_ends_the_tries(key, journal):
    with OpenAIServer(acts=(Act(status=500),)) as server:
        options = ClientOptions(backoff_s=0.2, deadline_s=0.5)
        with Client([make_spec(server, retries=100)], Ledger(), journal, options) as client:
            before = time.monotonic()
            assert ask_error(client, make_request()).kind == "server"
            assert time.monotonic() - before < 1.5
            assert 2 <= server.begun <= 6


def test_a_server_that_is_not_there_costs_nothing(key, journal):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    spec = ModelSpec(MODEL, f"http://127.0.0.1:{port}/v1", "SCRIPTED_KEY", PRICE_IN, PRICE_OUT, retries=1)
    with Client([spec], Ledger(), journal, FAST) as client:
        error = ask_error(client, make_request())
        assert error.kind == "connection" and "tried 2 times" in error.reason
        assert client.ledger.spent_pico == 0


@pytest.mark.parametrize(
    "usage",
    [
        None,
        [1],
        {},
        {"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": "0"},
        {"prompt_tokens": -5, "completion_tokens": -3, "total_tokens": -8},
        {"prompt_tokens": 10**20, "completion_tokens": 10**20, "total_tokens": 0},
        {"prompt_tokens": 1.5, "completion_tokens": 2.5, "total_tokens": 4},
        {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    ],
)
def test_wrong_usage_numbers_lose_no_reply_and_are_replaced_by_bounds(key, journal, usage, caplog):
    with OpenAIServer(acts=(Act(usage=usage),)) as server, make_client(server, journal) as client:
        with caplog.at_level(logging.WARNING, "mutators"):
            reply = client.ask(make_request())
        assert reply.text == GOOD.text
        (served,) = server.served
        estimated = client.ledger.summary()["estimated_usd"]
        assert served.pico <= round(estimated * 1e12) == client.ledger.spent_pico <= served.worst_pico
        assert "usage estimated" in caplog.text


def test_a_count_that_is_wrong_alone_does_not_spoil_the_other(key, journal):
    usage = {"prompt_tokens": 20, "completion_tokens": -1, "total_tokens": 19}
    with OpenAIServer(acts=(Act(usage=usage),)) as server, make_client(server, journal) as client:
        counts = client.ask(make_request()).usage
        assert (counts.prompt_tokens, counts.completion_tokens) == (20, len(GOOD.text))


@pytest.mark.parametrize("act", [Act("", reasoning="hm"), Act(None), Act(manner="no choices")])
def test_an_empty_reply_is_a_paid_reply(key, journal, act):
    with OpenAIServer(acts=(act,)) as server, make_client(server, journal) as client:
        assert client.ask(make_request()).text == ""
        assert server.tally_pico == client.ledger.spent_pico
    assert journal.names() == ["open", "close"]


@pytest.mark.parametrize("act", [Act("x" * 5_000_000), Act("y" * 1_500_000), Act("z" * 2_000_000, manner="gzip")])
def test_a_reply_of_megabytes_is_refused_and_paid(key, journal, act):
    with OpenAIServer(acts=(act,)) as server, make_client(server, journal) as client:
        error = ask_error(client, make_request())
        assert error.kind == "bad_reply" and server.begun == 1
        assert server.tally_pico <= client.ledger.spent_pico <= server.served[0].worst_pico
    assert journal.path.stat().st_size < 10_000


def test_an_endless_reply_is_cut_after_a_few_megabytes(key, journal):
    with OpenAIServer(acts=(Act(manner="endless"),)) as server, make_client(server, journal) as client:
        assert ask_error(client, make_request()).kind == "bad_reply"
        assert 4_000_000 < server.sent_bytes < 30_000_000, "the rest are buffers of the system"


def test_a_reply_that_utf8_cannot_spell_can_be_stored(key, journal):
    with OpenAIServer(acts=(Act("a\ud800b\x00c"),)) as server, make_client(server, journal) as client:
        assert client.ask(make_request()).text == "a?b\x00c"


def test_the_key_is_in_no_record_log_exception_or_reply(key, journal, caplog, capfd):
    echo = f"your key is {KEY}, or Bearer {KEY}"
    refusals = [Act(status=status, error=echo) for status in (400, 401, 429, 500)]
    with OpenAIServer(acts=(*refusals[:2], Act(echo, reasoning=echo), *refusals[2:])) as server:
        with caplog.at_level(logging.DEBUG), make_client(server, journal, retries=0) as client:
            errors = [ask_error(client, make_request(number)) for number in (0, 1)]
            reply = client.ask(make_request(2, text=f"The compiler printed {KEY}."))
            errors += [ask_error(client, make_request(number)) for number in (3, 4)]
        assert all(one.key == f"Bearer {KEY}" for one in server.served)
        seen = [json.dumps([one.body for one in server.served]), reply.text, reply.reasoning, repr(client._lanes)]
    for error in errors:
        assert error.__context__ is None and error.__cause__ is None
        seen += traceback.format_exception(error)
    seen += [caplog.text, *capfd.readouterr(), journal.path.read_text()]
    assert not [text for text in seen if KEY in text]
    assert "your key is [redacted]" in errors[0].reason and "[redacted]" in reply.text


def test_no_key_is_sent_where_none_was_named(journal, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with OpenAIServer(acts=(GOOD,)) as server, make_client(server, journal, api_key_env="") as client:
        client.ask(make_request())
        assert KEY not in server.served[0].key


def test_a_key_that_is_not_set_is_said_before_anything_is_sent(journal, monkeypatch):
    monkeypatch.delenv("SCRIPTED_KEY", raising=False)
    with OpenAIServer(acts=(GOOD,)) as server, make_client(server, journal) as client:
        error = ask_error(client, make_request())
        assert error.kind == "auth" and "SCRIPTED_KEY" in error.reason
        assert server.begun == 0 and journal.names() == []


def test_a_spec_refuses_keys_unknown_costs_and_prices_per_million():
    for changes in (
        {"api_key_env": "sk-123"},
        {"parameters": {"n": 4}},
        {"parameters": {"extra_body": {"n": 4}}},
        {"parameters": {"extra_headers": {"Authorization": "x"}}},
        {"price_in": 3.0},
        {"max_in_flight": 0},
    ):
        with pytest.raises(ProposalError):
            ModelSpec(MODEL, **changes)


def test_no_more_requests_are_in_flight_than_allowed(key, journal):
    with OpenAIServer(acts=(Act(delay_s=0.03),)) as server, make_client(server, journal, max_in_flight=2) as client:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(client.ask, [make_request(number) for number in range(8)]))
        assert server.peak == 2


def test_a_bucket_lets_the_rate_through_and_says_how_long_to_wait():
    bucket = Bucket(per_minute=120)
    waits = [bucket.take(1) for _ in range(5)]
    assert waits == pytest.approx([0, 0, 0.5, 1.0, 1.5], abs=0.05)
    bucket.give_back(3)
    assert bucket.take(1) == pytest.approx(0.5, abs=0.05)
    assert Bucket(None).take(1e9) == 0


def test_fifty_asks_at_once_overlap(key, journal):
    with OpenAIServer(acts=(Act(delay_s=1.0),)) as server, make_client(server, journal, max_in_flight=50) as client:
        before = time.monotonic()
        with ThreadPoolExecutor(50) as pool:
            list(pool.map(client.ask, [make_request(number) for number in range(50)]))
        assert time.monotonic() - before < 10, "one after the other they take 50 s"
        assert server.peak > 20

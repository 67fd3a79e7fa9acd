"""The client, through litellm, against a real server on loopback."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from openai_server import COMPLETION_PICO, PRICE_IN, PRICE_OUT, PROMPT_PICO, Act, OpenAIServer

from mutators.dialogue import Message, ModelError, Reply, Request
from mutators.ledger import Expense, Ledger
from mutators.llm import Bucket, Client, ClientOptions, ModelSpec
from mutators.proposal import ProposalError, Usage

MODEL = "openai/scripted"
KEY = "sk-very-secret-0123456789"
FAST = ClientOptions(backoff_s=0.01, longest_backoff_s=0.05, deadline_s=20)
GOOD = Act()

pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # pytest undoes the client's own filter


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


@pytest.fixture
def journal(tmp_path) -> FileJournal:
    return FileJournal(tmp_path / "journal.jsonl")


@pytest.fixture
def key(monkeypatch) -> str:
    monkeypatch.setenv("SCRIPTED_KEY", KEY)
    return KEY


def make_spec(server: OpenAIServer, **changes) -> ModelSpec:
    options = {"api_base": server.url, "api_key_env": "SCRIPTED_KEY", "price_in": PRICE_IN, "price_out": PRICE_OUT}
    return ModelSpec(MODEL, **{**options, "timeout_s": 10.0, "max_tokens": 500, **changes})


def make_request(number: int = 0, text: str = "Make it faster.", **changes) -> Request:
    messages = (Message("system", "You write kernels."), Message("user", text))
    return Request(number, 0, "rewrite", MODEL, messages, **{"island": number % 3, **changes})


def make_client(server: OpenAIServer, journal: FileJournal, ledger: Ledger | None = None, **changes) -> Client:
    return Client([make_spec(server, **changes)], ledger or Ledger(), journal, FAST)


def ask_error(client: Client, request: Request) -> ModelError:
    with pytest.raises(ModelError) as caught:
        client.ask(request)
    return caught.value


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
        with make_client(server, journal, timeout_s=0.3) as client:
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


def test_a_cap_refuses_before_anything_is_sent(key, journal):
    with OpenAIServer(acts=(GOOD,)) as server, make_client(server, journal, Ledger(max_usd=0.001)) as client:
        error = ask_error(client, make_request())
        assert error.kind == "budget" and "--max-usd" in error.reason
        assert server.begun == 0 and journal.names() == []


def test_a_request_waits_for_money_that_others_in_flight_will_give_back(key, journal):
    worst_usd = (18 + 15 + 32 + 256) * PRICE_IN + 500 * PRICE_OUT
    ledger = Ledger(max_usd=1.5 * worst_usd)
    with OpenAIServer(acts=(Act(delay_s=0.1),)) as server, make_client(server, journal, ledger) as client:
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(client.ask, [make_request(number) for number in range(4)]))
        assert len(replies) == 4 and server.peak == 1


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


def test_cancel_wakes_all_who_wait_at_once_and_close_leaves_nothing(key, journal):
    threads = set(threading.enumerate())
    with OpenAIServer(acts=(Act(manner="hang"),)) as server:
        client = make_client(server, journal, max_in_flight=4)
        with ThreadPoolExecutor(6) as pool:
            asked = [pool.submit(ask_error, client, make_request(number)) for number in range(6)]
            wait_until(lambda: server.now == 4)
            before = time.monotonic()
            client.cancel()
            errors = [one.result() for one in asked]
            assert time.monotonic() - before < 1.0
        assert {error.kind for error in errors} == {"cancelled"}
        assert server.begun == 4
        assert client.ledger.spent_pico == sum(one.worst_pico for one in server.served)
        client.close()
        assert ask_error(client, make_request(99)).kind == "cancelled"
        wait_until(lambda: server.connections == 0 or server.stopping.set())
    wait_until(lambda: not {one for one in set(threading.enumerate()) - threads if "kb-evolve" in one.name})
    assert journal.names().count("fail") == 4


def wait_until(is_so, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.01)


FAULTS = (
    (60, GOOD), (4, Act("Sure!\n```cpp\nint x;\n```\nEnjoy.")), (3, Act("", reasoning="Let me think.")),
    (3, Act("int x", finish="length")), (5, Act(status=429, headers={"Retry-After": "0.02"})), (4, Act(status=500)),
    (2, Act(status=502)), (2, Act(status=400)), (1, Act(status=401)), (3, Act(manner="reset")),
    (2, Act(manner="hang")), (2, Act(manner="html")), (2, Act(status=400, error="content_filter")),
    (3, Act(usage=None)), (3, Act(usage={"prompt_tokens": -1, "completion_tokens": "x", "total_tokens": 10**30})),
    (1, Act("x" * 5_000_000)), (2, Act(None)), (2, Act(manner="no choices")),
)  # fmt: skip


def test_an_hour_of_faults_leaves_the_ledger_exact_and_the_cap_unpassed(key, journal, tmp_path):
    """The server keeps its own accounts; three parts of them are known to the client, and each must be met exactly."""
    random = Random(4)
    script = random.choices([act for _, act in FAULTS], [weight for weight, _ in FAULTS], k=2_000)
    threads = set(threading.enumerate())
    ledger = Ledger(max_usd=0.35)
    with OpenAIServer(lambda _body, n: script[n]) as server:
        with make_client(server, journal, ledger, timeout_s=0.5) as client, ThreadPoolExecutor(8) as pool:
            requests = [make_request(number, "Make it faster. " * random.randrange(1, 60)) for number in range(300)]
            outcomes = list(pool.map(lambda request: outcome_of(client, request), requests))
        assert server.begun > 200
        wait_until(lambda: server.connections == 0 or server.stopping.set())
    assert_same_accounts(server, ledger)
    assert max(server.caps) <= 0.35e12 and ledger.spent_pico <= 0.35e12
    kinds = {kind for kind in outcomes if kind != "reply"}
    assert {"budget", "auth", "content_filter", "bad_reply", "bad_request"} <= kinds, kinds
    assert not {one for one in set(threading.enumerate()) - threads if "kb-evolve-llm" in one.name}
    again = Ledger(spent=expenses(journal))
    assert again.spent_pico == ledger.spent_pico, "what the journal holds is what was spent"


def outcome_of(client: Client, request: Request) -> str:
    try:
        client.ask(request)
    except ModelError as error:
        return error.kind
    return "reply"


def assert_same_accounts(server: OpenAIServer, ledger: Ledger) -> None:
    summary = ledger.summary()
    assert summary["in_flight"] == 0
    reported = sum(one.pico for one in server.served if one.certainty == "reported" and len(one.act.text or "") < 4e6)
    assert round(summary["reported_usd"] * 1e12) == reported
    cut = [one for one in server.served if one.certainty == "uncertain" or len(one.act.text or "") > 4e6]
    assert round(summary["uncertain_usd"] * 1e12) == sum(one.worst_pico for one in cut)
    guessed = [one for one in server.served if one.certainty == "estimated"]
    assert round(summary["estimated_usd"] * 1e12) == sum(estimated_pico(one) for one in guessed)
    assert ledger.spent_pico >= server.tally_pico
    for kind in ("by_model", "by_operator", "by_island"):
        assert sum(round(one["cost_usd"] * 1e12) for one in summary[kind].values()) == ledger.spent_pico


def estimated_pico(one) -> int:
    worst_prompt = (one.worst_pico - one.body["max_tokens"] * COMPLETION_PICO) // PROMPT_PICO
    return worst_prompt * PROMPT_PICO + len(one.act.text.encode()) * COMPLETION_PICO


def expenses(journal: FileJournal) -> list[Expense]:
    """What a later process reads as spent."""
    paid = [line["reply"]["usage"] for line in journal.events if line["event"] == "close"]
    paid += [line["usage"] for line in journal.events if line["event"] == "fail"]
    return [Expense(Usage(**usage)) for usage in paid]


CHILD = """
import json, os, sys
from pathlib import Path
where, touched = "import", []
def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        touched.append((where, str(arguments[1] if event == "socket.connect" else arguments)))
sys.addaudithook(watch)
import mutators.llm, mutators.ledger
is_light = "litellm" not in sys.modules
sys.path[:0] = [{tests!r}]
from test_llm import FileJournal, make_client, make_request
class Server: url = {url!r}
client = make_client(Server(), FileJournal(Path({path!r})))
prices = [mutators.ledger.listed_prices(name).is_known for name in ("openai/gpt-4o-mini", "openai/no-such-model")]
where = "ask"
text = client.ask(make_request(0)).text
file_key = os.environ.get("OPENAI_API_KEY")
print(json.dumps(dict(touched=touched, is_light=is_light, prices=prices, text=text, file_key=file_key)), flush=True)
client.ask(make_request(1))
"""


@dataclasses.dataclass
class Killed:
    """What is left of a process that was killed while its second request was on its way."""

    server: OpenAIServer
    report: dict
    stderr: str
    path: Path


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / ".env").write_text("OPENAI_API_KEY=sk-from-a-file\n")
    usage = {"prompt_tokens": "many", "completion_tokens": "few", "total_tokens": "0"}
    with OpenAIServer(acts=(Act("first", usage=usage), Act(manner="hang"), Act("second"))) as server:
        path = folder / "journal.jsonl"
        code = CHILD.format(tests=str(Path(__file__).parent), url=server.url, path=str(path))
        environment = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
        environment.update(PYTHONPATH=str(Path(__file__).parents[2]), SCRIPTED_KEY=KEY)
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment,
        )  # fmt: skip
        try:
            line = child.stdout.readline()
            if line:
                wait_until(lambda: server.begun == 2)
        finally:
            child.send_signal(signal.SIGKILL)
            _, stderr = child.communicate()
        assert line, stderr
        yield Killed(server, json.loads(line), stderr, path)


def test_a_killed_process_never_pays_twice_for_a_recorded_reply(key, killed):
    journal, begun = FileJournal(killed.path), killed.server.begun
    with make_client(killed.server, journal) as client:
        assert client.ask(make_request(0)).text == "first"
        assert killed.server.begun == begun == 2
        assert client.ask(make_request(1)).text == "second"
        assert killed.server.begun == 3
    event = journal.events[2]
    assert event["event"] == "open" and event["worst_usd"] > 0, "the killed try is owed"


def test_nothing_is_looked_up_at_import_and_only_the_server_is_spoken_to(killed):
    report = killed.report
    assert report["is_light"], "mutators.llm imports litellm only to ask"
    assert report["prices"] == [True, False]
    host, port = killed.server.server_address
    assert {tuple(one) for one in report["touched"]} == {("ask", f"('{host}', {port})")}
    assert report["file_key"] is None, "litellm read a .env file"


def test_the_console_stays_free_of_litellms_words(killed):
    assert [line for line in killed.stderr.splitlines() if not line.startswith("usage estimated")] == []


def test_fifty_asks_at_once_overlap(key, journal):
    with OpenAIServer(acts=(Act(delay_s=1.0),)) as server, make_client(server, journal, max_in_flight=50) as client:
        before = time.monotonic()
        with ThreadPoolExecutor(50) as pool:
            list(pool.map(client.ask, [make_request(number) for number in range(50)]))
        assert time.monotonic() - before < 10, "one after the other they take 50 s"
        assert server.peak > 20

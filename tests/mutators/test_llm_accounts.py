"""Money: caps, kills, cancellation and an hour of faults, by the accounts of a real server."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from llm_makers import FAST, GOOD, KEY, MODEL, FileJournal, ask_error, make_client, make_request, make_spec, wait_until
from openai_server import COMPLETION_PICO, PRICE_IN, PRICE_OUT, PROMPT_PICO, Act, OpenAIServer

from mutators.dialogue import ModelError, Request
from mutators.ledger import Expense, Ledger
from mutators.llm import Client
from mutators.proposal import Usage

pytestmark = [  # pytest undoes the filters that the client and litellm set
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
    pytest.mark.filterwarnings("ignore:.*ReadOnly"),
]


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


FAULTS = (
    (60, GOOD), (4, Act("Sure!\n```cpp\nint x;\n```\nEnjoy.")), (3, Act("", reasoning="Let me think.")),
    (3, Act("int x", finish="length")), (5, Act(status=429, headers={"Retry-After": "0.02"})), (4, Act(status=500)),
    (2, Act(status=502)), (2, Act(status=400)), (1, Act(status=401)), (3, Act(manner="reset")),
    (2, Act(manner="html")), (2, Act(status=400, error="content_filter")),
    (3, Act(usage=None)), (3, Act(usage={"prompt_tokens": -1, "completion_tokens": "x", "total_tokens": 10**30})),
    (1, Act("x" * 5_000_000)), (2, Act(None)), (2, Act(manner="no choices")),
)  # fmt: skip


SLOW = "openai/hangs"
CAP_USD = 0.5


def run_script(seed: int, journal: FileJournal, ledger: Ledger, count: int) -> tuple[OpenAIServer, list[str]]:
    """Asks `count` requests, 8 at once; one in 40 goes to a model that hangs. The server, closed, and what came."""
    random = Random(seed)
    script = random.choices([act for _, act in FAULTS], [weight for weight, _ in FAULTS], k=5 * count)
    texts = ["Make it faster. " * random.randrange(1, 60) for _ in range(count)]
    requests = [make_request(number, text) for number, text in enumerate(texts)]
    requests[::40] = [dataclasses.replace(request, model=SLOW) for request in requests[::40]]
    hang = Act(manner="hang")
    with OpenAIServer(lambda body, n: hang if body["model"] in SLOW else script[n]) as server:
        specs = make_spec(server, timeout_s=30.0), make_spec(server, name=SLOW, timeout_s=0.5, retries=1)
        with Client(specs, ledger, journal, FAST) as client, ThreadPoolExecutor(8) as pool:
            outcomes = list(pool.map(lambda request: outcome_of(client, request), requests))
        wait_until(lambda: server.connections == 0 or server.stopping.set())
    return server, outcomes


def test_an_hour_of_faults_leaves_the_ledger_exact_and_the_cap_unpassed(key, journal):
    """The server keeps its own accounts; three parts of them are known to the client, and each must be met exactly."""
    threads = set(threading.enumerate())
    ledger = Ledger(max_usd=CAP_USD)
    server, outcomes = run_script(4, journal, ledger, 500)
    assert server.begun > 300
    assert_same_accounts(server, ledger)
    assert max(server.tallies) <= ledger.spent_pico <= CAP_USD * 1e12
    assert ledger.spent_pico > 0.9 * CAP_USD * 1e12, "the cap was felt"
    kinds = set(outcomes)
    assert kinds >= {"reply", "budget", "auth", "content_filter", "bad_reply", "bad_request", "timeout"}, kinds
    assert not [one for one in set(threading.enumerate()) - threads if one.name == "kb-evolve-llm"]
    assert Ledger(spent=expenses(journal)).spent_pico == ledger.spent_pico, "the journal holds what was spent"


def outcome_of(client: Client, request: Request) -> str:
    try:
        client.ask(request)
    except ModelError as error:
        return error.kind
    return "reply"


def assert_same_accounts(server: OpenAIServer, ledger: Ledger) -> None:
    summary = ledger.summary()
    assert summary["in_flight"] == 0
    charged = {name: round(summary["by_model"][MODEL][f"{name}_usd"] * 1e12) for name in ("reported", "estimated")}
    uncertain = {name: round(one["uncertain_usd"] * 1e12) for name, one in summary["by_model"].items()}
    served = [one for one in server.served if one.body["model"] not in SLOW]
    cut = [one for one in served if one.certainty == "uncertain" or len(one.act.text or "") > 4e6]
    assert uncertain[MODEL] == sum(one.worst_pico for one in cut)
    whole = [one for one in served if one not in cut]
    assert charged["reported"] == sum(one.pico for one in whole if one.certainty == "reported")
    assert charged["estimated"] == sum(estimated_pico(one) for one in whole if one.certainty == "estimated")
    hung = [one for one in server.served if one.body["model"] in SLOW]
    assert uncertain.get(SLOW, 0) >= sum(one.worst_pico for one in hung), "the server may miss what was cut off"
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
from llm_makers import FileJournal, make_client, make_request
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

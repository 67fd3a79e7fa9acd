"""Notifications reach a real server and a real program; none that fails stops, slows or soils the search."""

from __future__ import annotations

import json
import logging
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fitness.replay import Landscape, Replay
from islands.store import open_store
from kb_evolve import notify
from kb_evolve.config import ConfigError, resolve
from kb_evolve.notify import CommandHook, Courier, NotDelivered, Notifier, WebHook, check_notify, scrubbed
from kb_evolve.search import Search
from problems.problem import Problem

SECRET = "T0P-SECRET-0042"
NEVER = "is never awaited"


class Server:
    """A chat on 127.0.0.1 that answers as it is told: a status, `hang`, `reset`, or `endless` with a body."""

    def __init__(self) -> None:
        self.answers: list[int | str] = []
        """What the next posts get; 200 when none is left."""
        self.bodies: list[dict[str, Any]] = []
        self.freed = threading.Event()
        self.retry_after = "0"
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer = server.answers.pop(0) if server.answers else 200
                if answer == "hang":
                    server.freed.wait(20)
                elif answer == "reset":
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.connection.close()
                else:
                    self.send_response(200 if answer == "endless" else int(answer))
                    self.send_header("Retry-After", server.retry_after)
                    self.end_headers()
                while answer == "endless" and not server.freed.wait(0.02):
                    self.wfile.write(b"x" * 10_000)

            def log_message(self, *_: object) -> None:
                """Says nothing."""

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:
                    return

            def finish(self) -> None:
                try:
                    super().finish()
                except (OSError, ValueError):
                    return

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_port}/hooks/{SECRET}"

    def close(self) -> None:
        self.freed.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def script(folder: Path, body: str) -> str:
    """A program's command line."""
    path = folder / "hook.py"
    path.write_text(body)
    return f"{sys.executable} {path}"


def search(problem: Problem, db: Path, **options: Any) -> tuple[Any, list[str]]:
    """A search on a scripted landscape, and what it warned of."""
    one = Search(problem, db=str(db), run="night", workbench=Replay(Landscape()), **options)
    warnings: list[str] = []
    one.warn = warnings.append
    return one.run(), warnings


def later(wait_s: float) -> bool:
    """Nothing newer comes."""
    return False


KEEP = """
import json, os, sys
with open({path!r}, "a") as file:
    file.write(json.dumps([json.load(sys.stdin), dict(os.environ)]) + "\\n")
"""


def test_a_command_is_told_of_a_new_best_and_of_the_end_without_the_keys_of_the_environment(
    tmp_path: Path, toy_problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "OPENAI_API_KEY": SECRET, "GITHUB_TOKEN": SECRET, "KB_EVOLVE_NOTIFY_URL": SECRET,
        "DATABASE": f"postgres://me:{SECRET}@host/x", "PLAIN": "stays",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    told = tmp_path / "told.jsonl"
    command = script(tmp_path, KEEP.format(path=str(told)))
    outcome, warnings = search(
        toy_problem, tmp_path / "kb.db", evaluations=12, mutators=("tune",), notify_command=command
    )
    assert not warnings
    messages = [json.loads(line) for line in told.read_text().splitlines()]
    end, environment = messages[-1]
    assert end["event"] == "end" and end["stop"] == "budget" and end["evaluations"] == 12
    assert end["best"]["id"] == outcome.best.candidate.id
    assert end["best"]["speedup"] == pytest.approx(outcome.best.evaluation.speedup)
    assert "night" in end["text"] and f"{outcome.best.evaluation.speedup:.3g}x" in end["text"]
    assert SECRET not in str(environment) and environment["PLAIN"] == "stays"


def test_keys_that_the_configuration_names_are_taken_out_too() -> None:
    assert scrubbed({"ODDLY_NAMED": SECRET, "PLAIN": "stays"}, {"ODDLY_NAMED"}) == {"PLAIN": "stays"}


def test_a_webhook_gets_text_for_chats_and_its_address_reaches_no_database_and_no_log(
    tmp_path: Path, toy_problem: Problem, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.answers = [404] * 20
    db = tmp_path / "kb.db"
    _, warnings = search(toy_problem, db, evaluations=8, mutators=("tune",), notify_url=server.url)
    assert len(warnings) == 1 and "404" in warnings[0] and "127.0.0.1" in warnings[0]
    assert server.bodies[-1]["event"] == "end"
    assert server.bodies[-1]["text"] == server.bodies[-1]["content"]
    assert server.bodies[-1]["allowed_mentions"] == {"parse": []}
    assert SECRET not in warnings[0] + caplog.text
    assert all(SECRET.encode() not in path.read_bytes() for path in tmp_path.glob("kb.db*"))
    with open_store(db, read_only=True) as store:
        assert "notify" not in store.runs()[0].config


def test_a_resumed_run_goes_on_without_the_address_and_tells_no_old_best(
    tmp_path: Path, toy_problem: Problem, server: Server
) -> None:
    db = tmp_path / "kb.db"
    search(toy_problem, db, evaluations=8, mutators=("tune",))
    outcome, _ = search(toy_problem, db, evaluations=8, mutators=("tune",), notify_url=server.url)
    assert outcome.best.candidate.mutator == "tune", "there is a best that could be told"
    assert [body["event"] for body in server.bodies] == ["end"]


def test_a_failing_search_is_told_as_a_failure(tmp_path: Path, toy_problem: Problem, server: Server) -> None:
    class Broken(Replay):
        def measure(self, *_: Any) -> Any:
            raise ZeroDivisionError(f"<!channel> @everyone look at {NEVER}")

    one = Search(toy_problem, db=str(tmp_path / "kb.db"), workbench=Broken(), evaluations=5, notify_url=server.url)
    with pytest.raises(ZeroDivisionError):
        one.run()
    (body,) = server.bodies
    assert body["event"] == "failure" and "ZeroDivisionError" in body["text"]
    assert "<" not in body["text"] and "@" not in body["text"], "nobody is called by a candidate's words"


@pytest.mark.parametrize("trouble", [500, 429, "reset", "hang"])
def test_what_may_pass_is_tried_again_until_it_is_taken(server: Server, trouble: int | str) -> None:
    server.answers = [trouble, trouble]
    hook = WebHook(server.url, reply_s=0.2, waits_s=(0.01, 0.01, 0.01))
    hook.deliver({"text": "x"}, later)
    assert len(server.bodies) == 3


@pytest.mark.parametrize(("trouble", "part"), [(500, "with 500"), ("reset", "no answer"), ("hang", "no answer")])
def test_tries_end_and_the_reason_names_the_host_alone(server: Server, trouble: int | str, part: str) -> None:
    server.answers = [trouble] * 9
    with pytest.raises(NotDelivered, match=part) as caught:
        WebHook(server.url, reply_s=0.2, waits_s=(0.01, 0.01)).deliver({"text": "x"}, later)
    assert len(server.bodies) == 3 and SECRET not in str(caught.value)


def test_a_refusal_that_will_not_pass_and_a_redirection_are_not_tried_again(server: Server) -> None:
    for status in (400, 302):
        server.answers = [status]
        with pytest.raises(NotDelivered, match=str(status)):
            WebHook(server.url, waits_s=(0.01,)).deliver({"text": "x"}, later)
    assert len(server.bodies) == 2


def test_an_answer_without_an_end_is_an_answer(server: Server) -> None:
    server.answers = ["endless"]
    WebHook(server.url, reply_s=5.0, waits_s=()).deliver({"text": "x"}, later)
    assert len(server.bodies) == 1


@pytest.mark.parametrize(("asked", "waited"), [("7", 7.0), ("9999", 60.0), ("Fri, 31 Dec 1999 23:59:59 GMT", 0.5)])
def test_an_address_is_asked_again_when_it_says_but_within_a_minute(server: Server, asked: str, waited: float) -> None:
    server.answers, server.retry_after, waits = [429], asked, list[float]()

    def overtaken(wait_s: float) -> bool:
        waits.append(wait_s)
        return False

    WebHook(server.url, waits_s=(0.5,)).deliver({"text": "x"}, overtaken)
    assert waits == [waited]


def test_a_newer_message_ends_the_tries_of_an_older_one(server: Server) -> None:
    server.answers = [500, 500]
    WebHook(server.url, waits_s=(0.5, 0.5)).deliver({"text": "x"}, lambda wait_s: True)
    assert len(server.bodies) == 1


def test_a_closed_port_is_one_warning(tmp_path: Path, toy_problem: Problem) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/"
    warnings: list[str] = []
    courier = Courier(WebHook(url, waits_s=(0.01,)), warnings.append)
    for number in range(3):
        courier.post({"text": str(number)})
        time.sleep(0.1)
    courier.close(5)
    assert len(warnings) == 1 and "ConnectError" in warnings[0]


def test_a_program_that_fails_hangs_or_is_missing_says_why(tmp_path: Path) -> None:
    environment = scrubbed(os.environ, set())
    failing = [sys.executable, "-c", "import sys; sys.exit('no \\x1b[31mbell')"]
    with pytest.raises(NotDelivered, match="exited with 1: no") as caught:
        CommandHook(failing, environment).deliver({"text": "x"}, later)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(NotDelivered, match="could not be started"):
        CommandHook([str(tmp_path / "none")], environment).deliver({"text": "x"}, later)
    child = tmp_path / "child"
    start = f"pathlib.Path({str(child)!r}).write_text(str(subprocess.Popen(['sleep', '60']).pid))"
    body = f"import pathlib, subprocess, time; {start}; time.sleep(60)"
    began_s = time.monotonic()
    with pytest.raises(NotDelivered, match="longer than"):
        CommandHook([sys.executable, "-c", body], environment, limit_s=1.0).deliver({"text": "x"}, later)
    assert time.monotonic() - began_s < 10
    until_s = time.monotonic() + 5  # the kernel ends it soon after the signal; by itself it would live for a minute
    while _lives(int(child.read_text())) and time.monotonic() < until_s:
        time.sleep(0.01)
    assert not _lives(int(child.read_text())), "what it had started is ended too"


def _lives(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_a_slow_hook_gets_the_newest_message_and_never_two_at_once() -> None:
    class Slow:
        name = "slow"

        def __init__(self) -> None:
            self.texts: list[str] = []
            self.at_once = self.most = 0
            self.go = threading.Semaphore(0)

        def deliver(self, message: dict[str, Any], is_overtaken: Any) -> None:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.texts.append(message["text"])
            self.go.acquire(timeout=10)
            self.at_once -= 1

        def kill(self) -> None:
            self.go.release()

    hook = Slow()
    courier = Courier(hook, print)
    courier.post({"text": "first"})
    while not hook.texts:
        time.sleep(0.005)
    began_s = time.monotonic()
    for number in range(1_000):
        courier.post({"text": f"elite {number}"})
    courier.post({"text": "end"})
    assert time.monotonic() - began_s < 1, "posting waits for nobody"
    hook.go.release(2)
    courier.close(10)
    assert hook.texts == ["first", "end"] and hook.most == 1


def test_a_hook_that_hangs_is_given_up_at_the_end_and_warned_of(tmp_path: Path) -> None:
    warnings: list[str] = []
    hook = CommandHook([sys.executable, "-c", "import time; time.sleep(60)"], scrubbed(os.environ, set()), limit_s=60)
    courier = Courier(hook, warnings.append)
    courier.post({"text": "end"})
    while hook.process is None:
        time.sleep(0.005)
    began_s = time.monotonic()
    courier.close(0.2)
    assert time.monotonic() - began_s < 5 and len(warnings) == 1 and "not told of the end" in warnings[0]
    assert hook.process.wait(5) != 0


def test_a_search_whose_hook_hangs_is_as_quick_and_ends_with_one_warning(
    tmp_path: Path, toy_problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "LAST_WORDS_S", 0.1)
    command = script(tmp_path, "import time; time.sleep(60)")
    began_s = time.monotonic()
    outcome, warnings = search(
        toy_problem, tmp_path / "kb.db", evaluations=12, mutators=("tune",), notify_command=command
    )
    assert outcome.stop == "budget" and outcome.evaluations == 12
    assert time.monotonic() - began_s < notify.COMMAND_S, "nothing waited for the program"
    assert len(warnings) == 1 and "not told of the end" in warnings[0]


def test_without_hooks_nothing_is_prepared() -> None:
    with Notifier(None, []) as notifier:  # type: ignore[arg-type]
        notifier(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"command": "no-such-program-here x"}, "no-such-program-here"),
        ({"command": "echo 'open"}, "quotes"),
        ({"command": "  "}, "no program"),
        ({"url": f"ftp://{SECRET}"}, "https://"),
        ({"url": f"https://[{SECRET}"}, "https://"),
    ],
)
def test_what_cannot_be_used_is_refused_before_the_run_and_without_its_secret(given: dict[str, str], part: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_notify(resolve({"notify": given}))
    assert part in str(caught.value) and SECRET not in str(caught.value)

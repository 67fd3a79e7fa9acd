"""The dashboard where somebody means harm, a file is taken away, or too much is asked for."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs pip install 'kb-evolve[serve]'")
pytest.importorskip("sse_starlette", reason="needs pip install 'kb-evolve[serve]'")
sys.path.append(str(Path(__file__).parent))
import anyio
import dashboard_makers as makers
import httpx

from islands.store import open_store
from kb_evolve.dashboard import app as app_module
from kb_evolve.dashboard.guard import HEADERS, Access, Guard
from kb_evolve.dashboard.watch import Watches

RUN, OTHER = "abcdefgh", "bcdefghi"


@pytest.fixture(scope="module")
def db(memory_dir):
    path = memory_dir / "misused.db"
    makers.fill(path, 6)
    return path


@pytest.fixture(scope="module")
def client(db):
    with makers.served(db) as address, httpx.Client(base_url=address) as client:
        yield client


@pytest.mark.parametrize(
    ("query", "text"),
    [(f"page={'9' * 5000}", "There are no more"), (f"island={'1' * 5000}", "No candidate fits")],
)
def test_a_number_of_thousands_of_digits_is_a_large_one(client, query, text):
    page = client.get(f"/runs/{RUN}/candidates?{query}")
    assert page.status_code == 200 and text in page.text


@pytest.mark.parametrize(
    ("site", "mode", "destination", "status"),
    [
        ("cross-site", "no-cors", "image", 403),
        ("same-site", "cors", "empty", 403),
        ("cross-site", "navigate", "iframe", 403),
        ("cross-site", "navigate", "document", 200),
        ("same-origin", "cors", "empty", 200),
        ("none", "navigate", "document", 200),
    ],
)
def test_a_page_of_another_server_may_link_here_and_not_make_it_work(client, site, mode, destination, status):
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": destination}
    answer = client.get(f"/runs/{RUN}/candidates?q=slow", headers=headers)
    assert answer.status_code == status
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS


def test_a_web_socket_is_closed_before_the_application_sees_it():
    sent = []

    async def send(message):
        sent.append(message)

    scope = {"type": "websocket", "path": "/static/x", "headers": [(b"host", b"evil.example")]}
    anyio.run(Guard(None, Access(token="secret"), None), scope, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_run_s_name_hides_nothing_in_plots_and_metrics(memory_dir):
    path = memory_dir / "named.db"
    makers.fill(path, 6)
    with open_store(path) as store:
        run = makers.a_run("cccccccc", f"evil {makers.HOSTILE}\r\x00", problem_id='a\n"\x1b[31m')
        store.create_run(run)
        makers.tell(store, run, 0, 1.5)
    with makers.served(path) as address:
        for place in ("/", f"/compare/runs?run={RUN}&run={run.id}", "/metrics"):
            text = httpx.get(address + place).text
            assert "u202egnp" in text and not re.search(
                "[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", text
            )
        assert 'problem="a\\n\\"\\\\x1b[31m"' in text


def test_another_file_in_the_place_of_the_first_is_read_and_none_is_said(memory_dir):
    path = memory_dir / "replaced.db"
    makers.fill(path, 6)
    makers.fill(memory_dir / "later.db", 9)
    with makers.served(path) as address, httpx.stream("GET", f"{address}/live?seen=old", timeout=20) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
        assert (next(lines), '"told": 7' in next(lines)) == ("event: state", True)
        assert "in 6 evaluations" in httpx.get(f"{address}/runs/{RUN}").text
        path.unlink()
        gone = httpx.get(f"{address}/runs/{RUN}")
        assert gone.status_code == 503 and "there is no database" in gone.text
        path.write_bytes(b"half a copy")
        assert httpx.get(f"{address}/metrics").status_code == 503
        os.replace(memory_dir / "later.db", path)
        assert "in 9 evaluations" in httpx.get(f"{address}/runs/{RUN}").text
        assert any('"told": 10' in line for line in lines), "an open stream goes on with the new file"


def test_a_run_that_lost_what_was_known_is_read_anew(memory_dir):
    path, earlier = memory_dir / "growing-back.db", memory_dir / "earlier.db"
    run = makers.fill(path, 12)
    makers.fill(earlier, 6)
    with open_store(path, read_only=True) as reader:
        watch = Watches(reader).find(run.id)
        assert len(watch.overview().history) == 12
        with sqlite3.connect(earlier) as source, sqlite3.connect(path) as target:
            source.backup(target)
        watch.pause_s = 0.0
        assert len(watch.overview().history) == 6


def test_a_damaged_run_breaks_its_own_pages_alone_and_in_words(memory_dir):
    path = memory_dir / "odd.db"
    run = makers.fill(path, 6)
    with open_store(path) as store:
        store.add_event(run.id, "noted", {})
    with sqlite3.connect(path) as damage:
        for (name,) in damage.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
            damage.execute(f"DROP TRIGGER {name}")
        damage.execute("UPDATE events SET fields = '{half'")
        damage.execute("UPDATE candidates SET details = '{half' WHERE number = 2")
    with makers.served(path) as address:
        answers = [httpx.get(f"{address}{place}") for place in (f"/runs/{RUN}", f"/candidates/{RUN}-000002")]
        home, metrics = httpx.get(address), httpx.get(f"{address}/metrics")
        assert httpx.get(f"{address}/runs/{OTHER}").status_code == 200
    assert "The records of run demo cannot be read (JSONDecodeError" in answers[0].text
    assert "its terminal says more" in answers[1].text
    for answer in answers:
        assert answer.status_code == 500
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert home.status_code == 200 and "Its records cannot be read" in home.text and "1.50x" in home.text
    assert metrics.status_code == 200 and 'run="demo"' not in metrics.text and "} 1.5\n" in metrics.text


def test_speedups_beyond_reason_and_lineages_beyond_reading_have_their_pages(memory_dir):
    path = memory_dir / "beyond.db"
    with open_store(path) as store, store.transaction():
        store.create_run(run := makers.a_run())
        makers.tell(store, run, 0, 1.0)
        makers.tell(store, run, 1, 1e300)
        for number in range(2, 260):
            makers.tell(store, run, number, 1.0 + number / 1e4, (number - 1,))
    with makers.served(path) as address:
        for place in ("/", f"/runs/{RUN}", f"/compare/runs?run={RUN}&run={RUN}", "/metrics"):
            assert httpx.get(address + place).status_code == 200, place
        page = httpx.get(f"{address}/candidates/{RUN}-000259").text
        assert "59 earlier steps are left out" in page and len(re.findall("<li[ >]", page)) == 200
        assert "earlier steps" not in httpx.get(f"{address}/candidates/{RUN}-000200").text


def test_streams_end_with_their_browsers_and_are_limited(memory_dir, monkeypatch):
    monkeypatch.setattr(app_module, "STREAMS", 2)
    path = memory_dir / "many.db"
    makers.fill(path, 6)
    with makers.served(path) as address:
        for _ in range(3):
            with contextlib.ExitStack() as stack:
                streams = [stack.enter_context(httpx.stream("GET", f"{address}/live", timeout=20)) for _ in range(2)]
                lines = [stream.iter_lines() for stream in streams]
                assert [next(each) for each in lines] == ["event: state"] * 2
                refused = httpx.get(f"{address}/live", timeout=5)
                assert refused.status_code == 503 and "2 pages" in refused.text
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline and not _opens(address):
                time.sleep(0.05)
            assert time.monotonic() < deadline, "a stream that its browser left still counts"


def _opens(address):
    with httpx.stream("GET", f"{address}/live", timeout=20) as stream:
        return stream.status_code == 200


def test_asking_for_a_stream_s_headers_opens_no_stream(client):
    answer = client.head("/live", timeout=5)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["content-length"] == "0"


def test_a_browser_that_is_opened_has_the_token_on_no_command_line(db, tmp_path):
    opener = tmp_path / "xdg-open"
    opener.write_text(f'#!/bin/sh\nstat -c %a "$(dirname "$1")" > {tmp_path}/mode\ncp "$1" {tmp_path}/page\n')
    opener.write_text(opener.read_text() + f'echo "$@" > {tmp_path}/said && mv {tmp_path}/said {tmp_path}/arguments\n')
    opener.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = [sys.executable, "-m", "kb_evolve", "serve", "--db", str(db), "--port", "0", "--token", "--open"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=makers.ROOT, env=environment)
    try:
        whole = re.search(r"http://\S+", child.stdout.readline())[0]
        deadline = time.monotonic() + 20
        while not (tmp_path / "arguments").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        arguments = (tmp_path / "arguments").read_text().split()
        assert len(arguments) == 1 and "token" not in arguments[0]
        assert (tmp_path / "mode").read_text() == "700\n" and f"url={whole}" in (tmp_path / "page").read_text()
        child.send_signal(signal.SIGINT)
        assert child.wait(10) == 0 and not Path(arguments[0]).parent.exists()
    finally:
        child.kill()
        child.communicate()

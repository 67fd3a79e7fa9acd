"""The dashboard over HTTP: a real server on loopback, a real database."""

import html
import http.client
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("uvicorn", reason="needs pip install 'kb-evolve[serve]'")
pytest.importorskip("sse_starlette", reason="needs pip install 'kb-evolve[serve]'")
sys.path.append(str(Path(__file__).parent))
import dashboard_makers as makers
import httpx

from fitness.evaluation import Verdict
from islands.store import open_store
from kb_evolve.dashboard import watch as watch_module
from kb_evolve.dashboard.guard import HEADERS, Access
from kb_evolve.dashboard.server import ServeError, access_for, is_loopback, listening
from kb_evolve.dashboard.watch import Watches
from kb_evolve.report import series
from kb_evolve.standing import best_of, standing

RUN, OTHER = "abcdefgh", "bcdefghi"
HOSTILE_ID = f"{RUN}-000004"
PAGES = (
    "/",
    f"/runs/{RUN}",
    "/runs/demo",
    f"/runs/{OTHER}",
    f"/runs/{RUN}/candidates",
    f"/runs/{RUN}/candidates?q=rationale&verdict=correct&operator=tune&island=0&order=fastest&page=1",
    f"/candidates/{HOSTILE_ID}",
    f"/candidates/{RUN}-000000",
    "/compare",
    f"/compare?id={HOSTILE_ID}&id={RUN}-000002",
    "/compare/runs",
    f"/compare/runs?run={RUN}&run={OTHER}",
)


@pytest.fixture(scope="module")
def db(memory_dir):
    path = memory_dir / "dashboard.db"
    makers.fill(path)
    return path


@pytest.fixture(scope="module")
def client(db):
    with makers.served(db) as address, httpx.Client(base_url=address) as client:
        yield client


def ids(page):
    """Candidates that a page's table lists, in order."""
    return re.findall(r'<th scope="row"><a href="/candidates/[a-z]+-0*(\d+)"', page.text)


@pytest.mark.parametrize("address", PAGES)
def test_every_page_answers_with_the_policy_and_without_inline_code(client, address):
    answer = client.get(address)
    assert answer.status_code == 200
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert not re.search(r"<[^>]+\s(style|on\w+)=", answer.text)
    assert re.findall(r"<script[^>]*>", answer.text) == ['<script src="/static/dashboard.js" defer>']
    assert not re.search(r"(src|href|action)=\"(https?:|//)", answer.text)


@pytest.mark.parametrize("address", PAGES)
def test_no_page_holds_a_character_that_hides_or_turns_text(client, address):
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u200b\u202a-\u202e\u2066-\u2069]", client.get(address).text)


def test_a_hostile_candidate_is_shown_as_text(client):
    page = client.get(f"/candidates/{HOSTILE_ID}").text
    assert "<script>document" not in page and "<img src=x" not in page and "<svg onload" not in page
    shown = html.unescape(re.sub(r"<[^>]+>", "", page))
    for expected in (
        "<script>document.title='owned';alert(1)</script>",
        "{{ 7 * 7 }}",
        r"\x1b[31mred",
        r"\u202egnp.exe",
    ):
        assert shown.count(expected) >= 5, f"{expected} should stand in source, rationale, reason, log and conversation"


def test_the_run_page_shows_what_the_report_would(client, db):
    page = client.get(f"/runs/{RUN}").text
    with open_store(db, read_only=True) as store:
        history, attempts = standing(store, RUN), store.attempts(RUN)
        best = best_of(store, RUN)
    assert f"<strong>{best.evaluation.speedup:.2f}x</strong>" in page and f"/candidates/{best.candidate.id}" in page
    assert page.count('class="dot"') == len(series.correct_points(history)) == 48
    counts = re.findall(r'<td class="num">([\d,]+)</td></tr>', page[page.index("From ask to faster") :])
    assert [int(count) for count in counts[:7]] == [stage.count for stage in series.funnel(history, attempts)]


def test_an_overview_follows_the_record_as_it_grows_and_equals_a_fresh_one(memory_dir):
    path = memory_dir / "growing.db"
    run = makers.fill(path, 12)
    with open_store(path) as writer, open_store(path, read_only=True) as reader:
        watch = Watches(reader).find(run.id)
        assert len(watch.overview().history) == 12
        watch.pause_s = 0.0
        makers.tell(writer, run, 50, 9.0, (10,))
        writer.open_attempt(run.id, 51, 0, "tune")
        grown = watch.overview()
        watch.pause_s = 0.0
        writer.close_attempt(run.id, 51, "error", reason="it broke")
        closed = watch.overview()
        fresh = Watches(reader).find(run.id).overview()
        assert grown.best.candidate.number == 50 and closed == fresh
        assert [attempt.outcome for attempt in (grown.attempts[-1], closed.attempts[-1])] == [None, "error"]
        assert [one.candidate.id for one in closed.history] == [one.candidate.id for one in reader.history(run.id)]
        assert closed.best.evaluation.speedup == best_of(reader, run.id).evaluation.speedup


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", [str(number) for number in range(59, 9, -1)]),
        ("page=2", [str(number) for number in range(9, -1, -1)]),
        ("page=3", []),
        ("verdict=wrong_result", [str(number) for number in range(59, 3, -5)]),
        ("order=fastest&verdict=correct&island=1&q=step", None),
        ("operator=seed", ["1", "0"]),
        ("island=0&verdict=wrong_result", ["54", "44", "34", "24", "14", "4"]),
        ("q=variant+17", ["17"]),
        ("q=RATIONALE+step+21", ["21"]),
        ("q=100%25", []),
        ("q=step_21", []),
        ("verdict=nonsense&page=-1&island=x", []),
    ],
)
def test_filters_search_and_pages(client, query, expected):
    page = client.get(f"/runs/{RUN}/candidates?{query}")
    if expected is None:
        expected = [str(number) for number in range(59, 0, -2) if number % 5 != 4]
    assert ids(page) == expected


def test_pages_link_to_each_other_and_keep_the_filter(client):
    first = client.get(f"/runs/{RUN}/candidates?verdict=&order=newest").text
    target = html.unescape(re.search(r'rel="next" href="([^"]+)"', first)[1])
    second = client.get(f"/runs/{RUN}/candidates{target}")
    assert len(ids(second)) == 10 and "order=newest" in target and 'rel="prev"' in second.text


def test_the_exact_source_is_given_as_a_file(client, db):
    answer = client.get(f"/candidates/{HOSTILE_ID}/source")
    with open_store(db, read_only=True) as store:
        assert answer.content.decode() == store.find_candidate(HOSTILE_ID).source
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("/runs/nosuch", "its runs: demo"),
        ("/runs/nosuch/candidates", "its runs: demo"),
        ("/candidates/zzz", "No candidate"),
        (f"/candidates/{RUN}-00", "several candidates"),
        ("/live?run=nosuch", "its runs"),
        (f"/compare?id=zzz&id={HOSTILE_ID}", "No candidate"),
        (f"/compare/runs?run=x&run={RUN}", "holds no run"),
        ("/nowhere", "no page /nowhere"),
        ("/static/../app.py", "no page"),
    ],
)
def test_what_is_not_there_is_said_in_words(client, address, text):
    answer = client.get(address)
    assert answer.status_code == 404 and text in html.unescape(answer.text)


def test_nothing_can_be_written_through_it(client):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "/").status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:80", "[x]"])
def test_a_name_that_is_not_ours_is_refused(client, host):
    assert client.get("/", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80"])
def test_addresses_of_this_machine_are_answered(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


def test_with_a_token_nothing_is_shown_without_it(db):
    with makers.served(db, token="secret-token") as address, httpx.Client(base_url=address) as client:
        for path in (*PAGES, "/metrics", "/live"):
            assert client.get(path).status_code == 401, path
        assert client.get("/?token=wrong").status_code == 401
        assert client.get("/static/dashboard.css").status_code == 200
        assert client.get("/metrics", headers={"authorization": "Bearer secret-token"}).status_code == 200
        answer = client.get(f"/runs/{RUN}?token=secret-token&page=2")
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{RUN}?page=2")
        assert "HttpOnly" in answer.headers["set-cookie"] and "SameSite=lax" in answer.headers["set-cookie"]
        assert client.get("/").status_code == 200, "the cookie is enough from now on"
    with makers.served(db, token="secret-token") as address:
        server = http.client.HTTPConnection(address.removeprefix("http://"))
        server.request("GET", "//evil.example/?token=secret-token")
        assert server.getresponse().headers["location"] == "/evil.example/", "it leads to no other host"


def test_only_loopback_goes_without_a_token():
    assert [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "example.org")] == [
        True, True, True, False, False, False,
    ]  # fmt: skip
    assert not access_for("127.0.0.1", 1).token
    tokens = {access_for("0.0.0.0", 1).token, access_for("10.0.0.1", 1).token, access_for("127.0.0.1", 1, True).token}
    assert len(tokens) == 3 and all(len(token) >= 40 for token in tokens)
    access = access_for("127.0.0.1", 1, names=["box.example"])
    assert access.knows("Box.Example:443") and not access.knows("other.example")
    assert not Access(token="a").admits("\udcff"), "what is no text is no token"


def test_metrics_are_in_prometheus_format(client, db):
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    sample = re.compile(r'[a-z_]+\{([a-z]+="([^"\\\n]|\\.)*",?)+\} -?[0-9.e+-]+$')
    assert all(line.startswith("# ") or sample.match(line) for line in lines)
    labels = 'run="demo",problem="scale",backend="cpp",device="cpu"'
    assert f"kb_evolve_evaluations_total{{{labels}}} 60" in lines
    assert f'kb_evolve_verdicts_total{{{labels},verdict="wrong_result"}} 12' in lines
    assert f'kb_evolve_attempts_total{{{labels},outcome="refused"}} 1' in lines
    assert f"kb_evolve_run_active{{{labels}}} 0" in lines
    with open_store(db, read_only=True) as store:
        assert f"kb_evolve_best_speedup{{{labels}}} {best_of(store, RUN).evaluation.speedup}" in lines
    age_s = next(float(line.split()[-1]) for line in lines if line.startswith("kb_evolve_last_evaluation_age_seconds{"))
    assert 0 <= age_s < 600


def test_the_first_page_does_not_wait_for_a_long_run_and_shows_it_when_it_was_read(db, monkeypatch):
    may_read, read = threading.Event(), watch_module.Watch._read

    def slow(watch, state):
        assert may_read.wait(20)
        return read(watch, state)

    monkeypatch.setattr(watch_module.Watch, "_read", slow)
    with makers.served(db) as address, httpx.Client(base_url=address, timeout=20) as client:
        began = time.monotonic()
        page = client.get("/").text
        assert time.monotonic() - began < 5 * watch_module.PATIENCE_S
        assert page.count("being read for the first time") == 2 and "demo" in page
        live = html.unescape(re.search(r"/live[^\"]*", page)[0])
        with client.stream("GET", live) as stream:
            for line in stream.iter_lines():
                page = client.get("/").text if line == "event: changed" else page
                if "being read for the first time" not in page:
                    break
                may_read.set()
    assert "evaluated" in page and "cannot be read" not in page


def test_a_stream_tells_of_what_is_added(memory_dir):
    path = memory_dir / "stream.db"
    run = makers.fill(path, 6)
    with (
        makers.served(path) as address,
        httpx.stream("GET", f"{address}/live?run={run.id}", timeout=20) as stream,
        open_store(path) as store,
    ):
        lines = (line for line in stream.iter_lines() if line.startswith(("event:", "data:")))
        assert (next(lines), '"told": 6' in next(lines)) == ("event: state", True)
        makers.tell(store, run, 30, 1.2)
        assert (next(lines), '"told": 7' in next(lines)) == ("event: changed", True)


def test_a_stream_speaks_when_the_page_will_have_what_changed_and_not_before(memory_dir, monkeypatch):
    """Whoever reads news seldom, because reading takes long, must not be left with the last but one."""
    monkeypatch.setattr(watch_module, "IDLE", 1e9)
    monkeypatch.setattr(watch_module, "LONGEST_PAUSE_S", 2.0)
    path = memory_dir / "seldom.db"
    run = makers.fill(path, 6)
    with makers.served(path) as address, open_store(path) as store:
        httpx.get(f"{address}/runs/{run.id}")
        page = httpx.get(f"{address}/runs/{run.id}").text  # the first reading is followed by no pause
        live = html.unescape(re.search(r'data-live="([^"]+)"', page)[1])
        makers.tell(store, run, 30, 1.2)
        assert "in 6 evaluations" in httpx.get(f"{address}/runs/{run.id}").text
        with httpx.stream("GET", address + live, timeout=20) as stream:
            assert any(line == "event: changed" for line in stream.iter_lines())
        assert "in 7 evaluations" in httpx.get(f"{address}/runs/{run.id}").text
        page = httpx.get(f"{address}/runs/{run.id}").text
        again = html.unescape(re.search(r'data-live="([^"]+)"', page)[1])
        assert again != live
        with httpx.stream("GET", address + again, timeout=3.5) as stream, pytest.raises(httpx.ReadTimeout):
            assert not any(line == "event: changed" for line in stream.iter_lines())


def test_a_run_without_anything_and_one_without_a_correct_candidate_have_their_pages(memory_dir):
    path = memory_dir / "empty.db"
    with open_store(path) as store:
        pass
    with makers.served(path) as address:
        assert "holds no run yet" in httpx.get(f"{address}/").text
    with open_store(path) as store:
        store.create_run(makers.a_run("aaaaaaaa", "empty"))
        store.create_run(wrong := makers.a_run("bbbbbbbb", "wrong"))
        makers.tell(store, wrong, 0, None, verdict=Verdict.COMPILE_ERROR)
    with makers.served(path) as address:
        assert "Nothing has been evaluated yet" in httpx.get(f"{address}/runs/empty").text
        assert "Nothing has been evaluated yet" in httpx.get(f"{address}/runs/empty/candidates").text
        page = httpx.get(f"{address}/runs/wrong").text
        assert "No correct kernel yet" in page and "compile error" in page
        assert httpx.get(f"{address}/compare/runs?run=empty&run=wrong").status_code == 200
        assert "kb_evolve_best_speedup{" not in httpx.get(f"{address}/metrics").text


def test_a_candidate_that_is_not_judged_yet_has_a_page(memory_dir):
    path = memory_dir / "pending.db"
    run = makers.fill(path, 6)
    from islands.candidate import Candidate

    with open_store(path) as store:
        store.open_attempt(run.id, 20, 0, "tune")
        store.add_candidate(run.id, Candidate(f"{run.id}-000020", 20, 0, 1, "cpp", "x = 1\n", (f"{run.id}-000000",)))
    with makers.served(path) as address:
        assert "not judged yet" in httpx.get(f"{address}/candidates/{run.id}-000020").text
        assert "not judged yet" in httpx.get(f"{address}/compare?id={run.id}-000020&id={run.id}-000001").text


def command(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "kb_evolve", "serve", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=makers.ROOT, **options,
    )  # fmt: skip


def test_the_command_says_where_it_serves_and_ends_by_ctrl_c_with_a_stream_open(db):
    child = command("--db", db, "--port", 0)
    try:
        line = child.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)[0]
        with httpx.stream("GET", f"{address}live", timeout=20) as stream:
            lines = stream.iter_lines()
            assert next(line for line in lines if line.startswith("event:")) == "event: state"
            child.send_signal(signal.SIGINT)
            began = time.monotonic()
            assert "changed" not in "".join(lines), "the stream ends as streams do"
            assert child.wait(10) == 0 and time.monotonic() - began < 5
        assert child.stderr.read() == ""
    finally:
        child.kill()


def test_the_command_prints_a_token_when_others_can_reach_it(db):
    child = command("--db", db, "--port", 0, "--host", "0.0.0.0")
    try:
        port, token = re.search(r"http://127\.0\.0\.1:(\d+)/\?token=([\w-]{40,})", child.stdout.readline()).groups()
        assert httpx.get(f"http://127.0.0.1:{port}/").status_code == 401
        assert httpx.get(f"http://127.0.0.1:{port}/?token={token}").status_code == 303
    finally:
        child.kill()
        child.wait()


def test_bad_addresses_and_databases_end_in_words(tmp_path, db):
    (tmp_path / "broken.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    (tmp_path / "text.db").write_text("hello")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        cases = [
            (["--db", db, "--port", taken.getsockname()[1]], 3, "cannot listen on 127.0.0.1"),
            (["--db", tmp_path / "none.db", "--port", 0], 2, "there is no database"),
            (["--db", tmp_path / "broken.db", "--port", 0], 2, "corrupt"),
            (["--db", tmp_path / "text.db", "--port", 0], 2, "not a SQLite database"),
            (["--db", db, "--port", 99999], 2, "99999"),
            (["--db", db, "--port", 0, "--host", "192.0.2.1"], 3, "This machine has no such address"),
            (["--db", db, "--port", 0, "--name", "https://box.example:443"], 2, "without http:// and port"),
        ]
        children = [(command(*arguments), code, text) for arguments, code, text in cases]
        for child, code, text in children:
            _, errors = child.communicate(timeout=60)
            assert (child.returncode, text in errors) == (code, True), errors
            assert "Traceback" not in errors
    with pytest.raises(ServeError, match="no address of that name"):
        listening("nosuch.invalid", 0)


def test_a_missing_package_is_named_with_its_extra(db, tmp_path):
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')\n")
    script = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from kb_evolve.__main__ import main; main()"
    found = subprocess.run(
        [sys.executable, "-c", script, "serve", "--db", db], capture_output=True, text=True, cwd=makers.ROOT
    )
    assert found.returncode == 3 and "pip install 'kb-evolve[serve]'" in found.stderr

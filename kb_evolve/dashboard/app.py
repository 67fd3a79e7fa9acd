"""The dashboard as an ASGI application: addresses, answers, live updates."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import anyio
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from islands.browsing import State, Wish
from islands.store import Store, StoreError
from kb_evolve.dashboard import metrics, views
from kb_evolve.dashboard.guard import Access, App, Guard
from kb_evolve.dashboard.pages import STATIC, rendered
from kb_evolve.dashboard.watch import PATIENCE_S, Unreadable, Watch, Watches

LOOK_EVERY_S = 1.0
"""How often an open page's stream asks the database whether something was added (some microseconds each)."""

LEAST_PAUSE_S = 2.0
"""Between two updates of an open page."""

GRACE_S = 0.8
"""For a stream to end by itself when the server ends."""

STREAMS = 100
"""Open at once; each asks the database every LOOK_EVERY_S."""

TITLES = {
    401: "A token, please",
    403: "Not from there",
    404: "Not here",
    405: "Only reading",
    421: "Another name",
    500: "This page broke",
    503: "Not now",
}

BROKEN = "The dashboard failed to make this page: where `kb-evolve serve` runs, its terminal says more."


States = list[tuple[str, State | None, bool, bool]]
"""Of each run its id, how far it has come, whether it is running, and whether it was read before."""


def create_app(watches: Watches, access: Access) -> App:
    """The application on the runs of an open, read-only store."""
    pages = Pages(watches)
    routes = [
        Route("/", pages.home),
        Route("/runs/{run}", pages.run),
        Route("/runs/{run}/candidates", pages.candidates),
        Route("/candidates/{id}", pages.candidate),
        Route("/candidates/{id}/source", pages.source),
        Route("/compare", pages.compare),
        Route("/compare/runs", pages.compare_runs),
        Route("/metrics", pages.metrics),
        Route("/live", pages.live),
        Mount("/static", StaticFiles(directory=STATIC), name="static"),
    ]
    handlers: dict[Any, Callable[..., Any]] = {
        views.Missing: lambda request, error: refusal(404, str(error)),
        Unreadable: lambda request, error: refusal(500, str(error)),
        StoreError: lambda request, error: refusal(503, str(error)),
        404: lambda request, error: refusal(404, f"There is no page {request.url.path}."),
        Exception: lambda request, error: refusal(500, BROKEN),
    }
    app = Starlette(routes=routes, exception_handlers=handlers)
    return Guard(app, access, refusal)  # type: ignore[arg-type]


def refusal(status: int, text: str) -> Response:
    """A page that says why there is no other."""
    return HTMLResponse(
        rendered("refusal.html", live="", status=status, title=TITLES[status], text=text), status_code=status
    )


class Pages:
    """The answers; all but `live` run in threads, since they wait for the database."""

    def __init__(self, watches: Watches) -> None:
        self.watches = watches
        self._streams = 0

    @property
    def store(self) -> Store:
        return self.watches.store

    def home(self, request: Request) -> Response:
        self.watches.warm(PATIENCE_S)
        live = self._live(self.watches.all())  # before the page: it may then know less than the page, never more
        return HTMLResponse(rendered("home.html", db=self.store.path.name, live=live, **views.home(self.watches)))

    def run(self, request: Request) -> Response:
        watch = self._watch(request)
        watch.overview()
        live = self._live([watch], watch.run.id)
        return HTMLResponse(rendered("run.html", live=live, **views.run_page(self.store, watch)))

    def candidates(self, request: Request) -> Response:
        watch = self._watch(request)
        wish = wish_of(request)
        page = _whole(request.query_params.get("page", ""), least=1) or 1
        live = self._live([watch], watch.run.id) if page == 1 and not wish.text else ""
        context = views.candidates_page(self.store, watch, wish, page)
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "page" and value]
        return HTMLResponse(rendered("candidates.html", live=live, query=query, **context))

    def _live(self, watches: list[Watch], run_id: str = "") -> str:
        """Address of the stream for a page that shows these runs as they were read last."""
        known = [(watch.run.id, watch.known) for watch in watches]
        states = [
            (name, one.state if one else None, self.store.is_running(name), one is not None) for name, one in known
        ]
        return f"/live?seen={digest_of(states)}" + (f"&run={quote(run_id)}" if run_id else "")

    def candidate(self, request: Request) -> Response:
        return HTMLResponse(
            rendered("candidate.html", live="", **views.candidate_page(self.watches, request.path_params["id"]))
        )

    def source(self, request: Request) -> Response:
        """The exact source as a file to keep; browsers do not show it."""
        candidate = views.find_candidate(self.store, request.path_params["id"])
        name = f'attachment; filename="{re.sub("[^A-Za-z0-9_-]", "_", candidate.id)}.py"'
        return PlainTextResponse(candidate.source.encode(), headers={"content-disposition": name})

    def compare(self, request: Request) -> Response:
        chosen = [value.strip() for value in request.query_params.getlist("id") if value.strip()]
        if len(chosen) != 2:
            return HTMLResponse(rendered("choose.html", live="", what="candidates", chosen=chosen, runs=[]))
        return HTMLResponse(rendered("compare.html", live="", **views.compare_page(self.watches, *chosen)))

    def compare_runs(self, request: Request) -> Response:
        chosen = [value for value in request.query_params.getlist("run") if value]
        if len(chosen) != 2:
            runs = [watch.run for watch in self.watches.all()]
            return HTMLResponse(rendered("choose.html", live="", what="runs", chosen=chosen, runs=runs))
        return HTMLResponse(rendered("compare_runs.html", live="", **views.compare_runs_page(self.watches, *chosen)))

    def metrics(self, request: Request) -> Response:
        text = metrics.exposition(self.watches, datetime.datetime.now(datetime.UTC))
        return PlainTextResponse(text.encode(), headers={"content-type": metrics.MEDIA_TYPE})

    async def live(self, request: Request) -> Response:
        """A stream of events: `state` once, then `changed` whenever the page is worth asking for again.

        The address holds a digest of what the page shows, so that nothing is missed between the page and its stream.
        """
        name = request.query_params.get("run")
        watch = None if name is None else await run_in_threadpool(self._found, name)
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._streams >= STREAMS:
            return refusal(503, f"{STREAMS} pages follow their runs already. Close some; this one is only not live.")
        stopping = anyio.Event()
        changes = self._changes(watch, request.query_params.get("seen", ""), stopping)
        return EventSourceResponse(changes, shutdown_event=stopping, shutdown_grace_period=GRACE_S)

    async def _changes(self, watch: Watch | None, seen: str, stopping: anyio.Event) -> AsyncIterator[dict[str, str]]:
        self._streams += 1
        try:
            async for message in self._news(watch, seen, stopping):
                yield message
        finally:
            self._streams -= 1

    async def _news(self, watch: Watch | None, seen: str, stopping: anyio.Event) -> AsyncIterator[dict[str, str]]:
        event = "state"
        while not stopping.is_set():
            try:
                watches, states = await run_in_threadpool(self._look, watch)
            except StoreError:  # it may come back; a page that is asked for says what is wrong
                await _pause(stopping, LEAST_PAUSE_S)
                continue
            digest = digest_of(states)
            if event == "changed":
                if digest == seen:
                    await _pause(stopping, LOOK_EVERY_S)
                    continue
                seen = digest
                wait_s = max((each.wait_s for each in watches), default=0.0)
                await _pause(stopping, wait_s)  # now the page will have what changed
            told, running = sum(one[1].told for one in states if one[1]), sum(one[2] for one in states)
            yield {"event": event, "data": json.dumps({"told": told, "running": running})}
            event = "changed"
            await _pause(stopping, LEAST_PAUSE_S)

    def _look(self, watch: Watch | None) -> tuple[list[Watch], States]:
        """That run, or all, and how far they have come."""
        store = self.store
        watches = [watch] if watch else self.watches.all()
        known = [(each.run.id, each.known is not None) for each in watches]
        return watches, [(name, store.state(name), store.is_running(name), is_known) for name, is_known in known]

    def _watch(self, request: Request) -> Watch:
        return self._found(request.path_params["run"])

    def _found(self, name: str) -> Watch:
        watch = self.watches.find(name)
        if watch is None:
            raise views.Missing(views.no_run(self.store, name))
        return watch


async def _pause(stopping: anyio.Event, seconds: float) -> None:
    """Waits so long, or until the server ends."""
    with anyio.move_on_after(seconds):
        await stopping.wait()


def digest_of(states: States) -> str:
    """Differs where anything of the states does."""
    return hashlib.sha256(repr(states).encode()).hexdigest()[:16]


def wish_of(request: Request) -> Wish:
    """Which candidates the address asks for."""
    values = request.query_params
    return Wish(
        verdict=values.get("verdict", ""),
        mutator=values.get("operator", ""),
        island=_whole(values.get("island", ""), least=0),
        text=values.get("q", "").strip()[:200],
        fastest=values.get("order") == "fastest",
    )


def _whole(text: str, least: int) -> int | None:
    """The whole number, at most a million; None for anything else."""
    if not (text.isascii() and text.isdigit()):
        return None
    digits = text.lstrip("0") or "0"
    number = int(digits) if len(digits) < 7 else 1_000_000  # Python refuses to read thousands of digits
    return number if number >= least else None

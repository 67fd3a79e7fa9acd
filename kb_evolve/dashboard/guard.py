"""Who may read the dashboard, and what a browser may do with its pages."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
"""Of every response."""

OPEN = "/static/"
"""Our own style sheet, script and icon: shown to everybody, so that the page that asks for the token has its style."""


@dataclass(frozen=True, slots=True)
class Access:
    """Under which names the server answers, and the token it asks for."""

    names: frozenset[str] = frozenset({"localhost"})
    """Host names, in lower case; addresses are always answered: only a name can be rebound by somebody's DNS."""
    token: str = ""
    """Empty: nobody is asked."""
    port: int = 0

    @property
    def cookie(self) -> str:
        """Its name: browsers do not keep cookies of several ports of one host apart."""
        return f"kb_evolve_{self.port}"

    def knows(self, host: str) -> bool:
        """Whether a request's Host header names this server."""
        name = name_of(host)
        return name in self.names or _is_address(name)

    def admits(self, offered: str) -> bool:
        """Whether that is the token; the time it takes says nothing about where the two differ."""
        return hmac.compare_digest(offered.encode("utf-8", "surrogateescape"), self.token.encode())


class Guard:
    """ASGI middleware: refuses foreign hosts, writing methods and requests without the token; adds HEADERS."""

    def __init__(self, app: App, access: Access, refuse: Callable[[int, str], App]) -> None:
        self.app = app
        self.access = access
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # none is served, and it would bring neither a checked host nor a token
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def protected(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in added if pair[0] not in known)]
            await send(message)

        await self._answer(scope)(scope, receive, protected)

    def _answer(self, scope: Scope) -> App:
        """Who answers: the application, a refusal, or a redirection that stores the token."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if not self.access.knows(host):
            return self._refuse(421, f"This server does not answer to the name {host!r}.")
        if scope["method"] not in ("GET", "HEAD"):
            return self._refuse(405, "This server only reads.")
        if _is_from_elsewhere(headers):
            return self._refuse(403, "A page of another server asked for this. Open it by a link or its address.")
        if not self.access.token or scope["path"].startswith(OPEN):
            return self.app
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        offered = next((value for name, value in query if name == "token"), None)
        if offered is not None and self.access.admits(offered):
            rest = urlencode([(name, value) for name, value in query if name != "token"])
            return self._welcome(scope["path"], rest)
        if any(self.access.admits(one) for one in self._offers(headers)):
            return self.app
        return self._refuse(401, "That is not the token." if offered else "This dashboard asks for its token.")

    def _offers(self, headers: dict[str, str]) -> list[str]:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        pairs = [part.strip().partition("=") for part in headers.get("cookie", "").split(";")]
        cookies = [value for name, _, value in pairs if name == self.access.cookie]
        return [*cookies, *([bearer.strip()] if scheme.lower() == "bearer" else [])]

    def _welcome(self, path: str, query: str) -> App:
        """Stores the token as a cookie and asks again without it: an address with a token is easily passed on.

        The cookie is a lax one: browsers leave a strict one out of what follows a link from another site.
        """
        from starlette.responses import RedirectResponse

        place = "/" + path.lstrip("/\\")  # never another host, as `//host` would be
        response = RedirectResponse(place + (f"?{query}" if query else ""), status_code=303)
        response.set_cookie(self.access.cookie, self.access.token, httponly=True, samesite="lax", path="/")
        return response


def _is_from_elsewhere(headers: dict[str, str]) -> bool:
    """Whether a browser says that another origin's page wants this as a part of itself; links to pages are welcome.

    Such a page could not read the answer, but make this machine work for it (https://www.w3.org/TR/fetch-metadata/).
    """
    if headers.get("sec-fetch-site", "none") not in ("cross-site", "same-site"):
        return False
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) != ("navigate", "document")


def name_of(host: str) -> str:
    """The name or address in a Host header, in lower case, without port, brackets and the root's dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].rstrip(".").lower()


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True

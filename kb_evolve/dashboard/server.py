"""The dashboard's server: a port that nobody else has, a token where others can reach it, an end by Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from pathlib import Path

from islands.store import StoreError, open_store
from kb_evolve.dashboard.guard import Access

SHUTDOWN_S = 1
"""Seconds that open streams get when the server ends."""


ADVICE = {
    errno.EADDRINUSE: "Another server has it: name a free one with --port (0 takes any).",
    errno.EADDRNOTAVAIL: "This machine has no such address: --host 127.0.0.1 is itself, 0.0.0.0 all that it has.",
    errno.EACCES: "Low ports belong to the administrator: name one from 1024 on with --port.",
}
"""What to do about a port that is not to be had."""


class ServeError(Exception):
    """The server cannot listen; says what to do."""


def serve(
    db: str | Path,
    host: str = "127.0.0.1",
    port: int = 8764,
    with_token: bool = False,
    names: Iterable[str] = (),
    tell: Callable[[str, Access], None] = lambda address, access: None,
) -> None:
    """Serves the database until Ctrl-C; `tell` learns the address when the port is open.

    StoreError when the database cannot be read, ServeError when the address is not to be had.
    """
    import uvicorn

    from kb_evolve.dashboard.app import create_app
    from kb_evolve.dashboard.watch import Watches

    with open_store(db, read_only=True) as store, listening(host, port) as listener:
        found_port = int(listener.getsockname()[1])
        access = access_for(host, found_port, with_token, names)
        watches = Watches(store)
        config = uvicorn.Config(
            create_app(watches, access),
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="off",
            timeout_graceful_shutdown=SHUTDOWN_S,
        )
        tell(address_of(host, found_port), access)
        with contextlib.suppress(StoreError):  # said again, in words, on the page that needs it
            watches.warm(0.0)
        with contextlib.suppress(KeyboardInterrupt):
            uvicorn.Server(config).run(sockets=[listener])


def access_for(host: str, port: int, with_token: bool = False, names: Iterable[str] = ()) -> Access:
    """Who may read what is served there: everybody of this machine on loopback, else whoever has the new token."""
    known = {"localhost", *(name.lower().rstrip(".") for name in names)}
    if not is_loopback(host):
        known |= {socket.gethostname().lower(), host.lower()}
    token = secrets.token_urlsafe(32) if with_token or not is_loopback(host) else ""
    return Access(frozenset(known), token, port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches that address."""
    if host.lower() == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; ServeError when it cannot. Port 0 takes any free one."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise ServeError(
            f"--host {host}: no address of that name ({error}). Use 127.0.0.1, or an address of this machine."
        ) from error
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        advice = ADVICE.get(error.errno or 0, "Name another address with --host, or another port with --port.")
        raise ServeError(f"cannot listen on {host}, port {port}: {error.strerror}. {advice}") from error
    return listener


def address_of(host: str, port: int) -> str:
    """The address to open; where all addresses are served, the one of this machine."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}/"

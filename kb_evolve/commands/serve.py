"""`kb-evolve serve`: the runs of a database, live, in a browser."""

from __future__ import annotations

import contextlib
import html
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kb_evolve.commands.shared import db_option

if TYPE_CHECKING:
    from kb_evolve.dashboard.guard import Access

NICENESS = 5
"""Of the dashboard's process: a search beside it, and the kernels that this times, come first."""

NEEDED = ("uvicorn", "starlette", "sse_starlette", "jinja2", "markupsafe", "anyio", "h11")


def host_names(context: click.Context, parameter: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if a Host header can say them: a port is not part of one."""
    for name in names:
        if not re.fullmatch(r"[A-Za-z0-9._-]+", name):
            raise click.BadParameter(f"{name!r} is no host's name; give it as in box.example, without http:// and port")
    return names


@click.command(epilog="Example: kb-evolve serve --db night.db --open")
@db_option
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H", help="Address to listen on.")
@click.option(
    "--port",
    default=8764,
    show_default=True,
    metavar="P",
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes any free one.",
)
@click.option("--token", "with_token", is_flag=True, help="Ask for a token on loopback, too.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    callback=host_names,
    help="Another host name to answer to, as a proxy's.",
)
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser of this machine.")
def serve(db: str, host: str, port: int, with_token: bool, names: tuple[str, ...], open_it: bool) -> None:
    """Show the runs of a database in a browser, live, until Ctrl-C.

    The database is only read. Other machines reach it only with --host, and then need the token that is printed once.
    """
    try:
        from kb_evolve.dashboard import server
    except ImportError as error:
        missing(error)
    os.nice(NICENESS)
    try:
        with tempfile.TemporaryDirectory(prefix="kb_evolve-") if open_it else contextlib.nullcontext() as folder:
            server.serve(db, host, port, with_token, names, lambda address, access: _told(address, access, db, folder))
    except server.ServeError as error:
        click.echo(f"kb-evolve: {error}", err=True)
        sys.exit(3)
    except ImportError as error:
        missing(error)


def missing(error: ImportError) -> None:
    """Says which extra holds the package, and ends; other packages' errors go on."""
    if (error.name or "").partition(".")[0] not in NEEDED:
        raise error
    click.echo(
        f"kb-evolve: serve needs the packages of the dashboard ({error}): pip install 'kb-evolve[serve]'", err=True
    )
    sys.exit(3)


def _told(address: str, access: Access, db: str, folder: str | None) -> None:
    """Prints where it is, once the port is open, and opens it where a folder of our own is given."""
    whole = f"{address}?token={access.token}" if access.token else address
    click.echo(f"{db} is shown at {whole} (Ctrl-C ends it)")
    if access.token:
        click.echo("Whoever has this address can read everything in the database; it is not encrypted on its way.")
    sys.stdout.flush()
    if folder and click.launch(_leading(whole, folder) if access.token else whole) != 0:
        click.echo("No browser could be opened here: open the address above.", err=True)


def _leading(address: str, folder: str) -> str:
    """A page that leads to the address: a browser's command line, with the token in it, would be read by everybody."""
    page = Path(folder, "open.html")
    page.write_text(f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}">\n')
    return str(page)

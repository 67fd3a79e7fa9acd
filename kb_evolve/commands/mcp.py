"""`kb-evolve mcp`: coding agents as models."""

from __future__ import annotations

import sys

import click

from kb_evolve.commands.shared import db_option

NEEDED = ("mcp", "mcp_types", "pydantic", "anyio")


@click.command(epilog="Example: kb-evolve mcp --db night.db")
@db_option
@click.option(
    "--sandbox",
    type=click.Choice(["auto", "none"]),
    default="auto",
    show_default=True,
    help="auto refuses to judge below level S2; none runs candidates without a sandbox.",
)
@click.option(
    "--kernelbench",
    metavar="PATH",
    envvar="KERNELBENCH_ROOT",
    help="A KernelBench checkout or data set, for level1/19.",
)
def mcp(db: str, sandbox: str, kernelbench: str | None) -> None:
    """Serve a coding agent over standard input and output (Model Context Protocol).

    Tools: ask and tell (the questions of a search with --model mailbox), evaluate, top, show, problems. Agents start
    this command themselves; docs/mcp.md says how to tell them to.
    """
    try:
        from kb_evolve.mcp_server import serve
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        click.echo(f"kb-evolve: mcp needs the MCP SDK ({error}): pip install 'kb-evolve[mcp]'", err=True)
        sys.exit(3)
    serve(db, sandbox, kernelbench)

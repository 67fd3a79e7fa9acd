"""The command line: `kb-evolve COMMAND`.

Exit codes: 0 done; 1 the answer is no (a kernel that is not correct, a failed check); 2 wrong usage or
bad input; 3 this machine or an outside service failed. Ctrl-C in `run` ends it with 0: it was asked to
stop, and it can go on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from kb_evolve import __version__, check_rooms

INTERRUPTED = 130
BAD_INPUT = {"ProblemError", "ConfigError", "StoreError", "ProposalError"}
"""Names of our exceptions for what a user can put right; their rooms need packages that an error must not."""


WORDS = "kb_evolve.words"
"""Where click's context keeps the command line, word by word."""


class Commands(click.Group):
    """A group whose commands' errors end as one paragraph on stderr and an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, SystemExit):
            raise
        except BrokenPipeError:
            raise
        except KeyboardInterrupt:
            click.echo("kb-evolve: stopped by you", err=True)
            sys.exit(INTERRUPTED)
        except Exception as error:
            if ctx.params.get("debug"):
                raise
            code, text = explain(error, ctx.meta[WORDS])
            click.echo(f"kb-evolve: {text}", err=True)
            sys.exit(code)


def explain(error: Exception, words: Sequence[str] = ()) -> tuple[int, str]:
    """The exit code and the paragraph for an exception that reached the command line, which was `words`."""
    if isinstance(error, ImportError):
        return 3, f"{error}: a package that kb_evolve needs cannot be imported; install kb_evolve again"
    text = "\n".join(line for line in str(error).splitlines() if line.strip())
    classes = {cls.__name__ for cls in type(error).__mro__}
    if classes & BAD_INPUT:
        return 2, text
    if "JudgeError" in classes:
        return 3, text
    if isinstance(error, OSError) and (place := named_place(error, words)):
        return 2, f"{place} cannot be used: {error.strerror} ({error.filename}); name another place, or put this right"
    return 3, (
        f"unexpected {type(error).__name__}: {text or 'no message'}. What a run was told is kept; "
        f"`kb-evolve --debug ...` shows where this comes from, which belongs in a bug report."
    )


def named_place(error: OSError, words: Sequence[str]) -> str:
    """The word of the command line that names what the file system refused, something in it, or a folder above it.

    Empty where none does: the user can put nothing right then.
    """
    if not isinstance(error.filename, str):
        return ""
    refused = Path(os.path.abspath(error.filename))
    for word in words:
        name = word.partition("=")[2] if word.startswith("-") else word
        place = Path(os.path.abspath(os.path.expanduser(name)))
        is_above = os.sep in name and refused in place.parents
        if name and (place == refused or place in refused.parents or is_above):
            return name
    return ""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: kb-evolve run rmsnorm --evaluations 60",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error, and log what happens.")
@click.version_option(__version__, prog_name="kb-evolve")
def cli(debug: bool) -> None:
    """Evolve kernels that are verified and faster.

    A search starts from a slow, correct kernel and ends with the fastest one that a judge, which trusts
    no candidate, found to be correct on this machine.
    """
    import logging

    level = logging.INFO if debug else logging.ERROR
    logging.basicConfig(stream=sys.stderr, level=level, format="%(asctime)s %(name)s %(message)s")


def add_commands() -> None:
    """Puts every command into the group; their modules import what is heavy only when they run."""
    from kb_evolve.commands import (
        baseline,
        conversations,
        database,
        doctor,
        evaluate,
        fastp,
        history,
        imports,
        mcp,
        outputs,
        problems,
        run,
        serve,
        verify,
    )

    for command in (
        run.run,
        evaluate.evaluate,
        baseline.baseline,
        problems.problems,
        history.runs,
        history.top,
        history.show,
        conversations.ask,
        conversations.tell,
        mcp.mcp,
        outputs.report,
        serve.serve,
        outputs.export,
        verify.verify,
        fastp.fastp,
        imports.import_path,
        database.database,
        doctor.doctor,
    ):
        cli.add_command(command)


def main() -> None:
    """Runs the command line and exits."""
    try:
        check_rooms()
    except ImportError as error:
        click.echo(f"kb-evolve: {error}", err=True)
        sys.exit(2)
    add_commands()
    cli()

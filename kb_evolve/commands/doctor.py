"""`kb-evolve doctor`: what this machine can do."""

from __future__ import annotations

import sys

import click

from kb_evolve.commands.shared import db_option, emit_json, json_option


@click.command(epilog="Example: kb-evolve doctor --json")
@click.option("--release", metavar="DEVICE", help="Use a device again that was put aside after it failed twice.")
@db_option
@json_option
def doctor(release: str | None, db: str, as_json: bool) -> None:
    """Check device, compilers, sandbox, model keys and database.

    Keys are found by name; their values are never shown. Exits with 1 when a search cannot run here.
    """
    if release is not None:
        _release(release)
        return
    from kb_evolve.doctor import examine

    checks = []
    for check in examine(db):
        checks.append(check)
        if not as_json:
            click.echo(f"{'ok ' if check.is_fine else 'NO '} {check.name:11} {check.found}")
            if check.advice and not check.is_fine:
                click.echo(f"                {check.advice}")
    if as_json:
        documents = [
            {"name": check.name, "ok": check.is_fine, "found": check.found, "advice": check.advice} for check in checks
        ]
        emit_json({"ok": all(check.is_fine for check in checks), "checks": documents})
    if not all(check.is_fine for check in checks):
        sys.exit(1)


def _release(device: str) -> None:
    from fitness import health
    from kb_evolve.config import ConfigError
    from kb_evolve.devices import DEVICE

    if not DEVICE.fullmatch(device):
        raise ConfigError(f"unknown device {device!r}; expected the name under which it was put aside, such as cuda:0")
    is_lifted = health.release(device)
    click.echo(f"{device} is used again" if is_lifted else f"{device} was not put aside")

"""`kb-evolve ask` and `tell`: questions that wait for a person or an agent; and what was said to models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.outputs import find_run
from kb_evolve.commands.shared import db_option, emit_json, json_option
from kb_evolve.commands.tables import exact_or_spelled, fitted, screen_width

if TYPE_CHECKING:
    from islands.turns import Turn

LONGEST_REPLY_BYTES = 4 << 20


@click.command(epilog="Example: kb-evolve ask rmsnorm-cpp-cpu-fp32 12 > prompt.md")
@click.argument("run", required=False)
@click.argument("number", required=False, type=click.IntRange(min=0))
@db_option
@json_option
def ask(run: str | None, number: int | None, db: str, as_json: bool) -> None:
    """List the questions that wait for an answer, or print one: that of RUN with this NUMBER.

    They come from searches with --model mailbox; answer with `kb-evolve tell`. A question stays open when its
    search stops, and its answer is used when the search goes on.
    """
    from islands.store import open_store

    with open_store(db, read_only=True) as store:
        found = find_run(store, run) if run else None
        waiting = [turn for turn in store.unanswered(found.id if found else None) if turn.model == "mailbox"]
        names = {one.id: one.name for one in store.runs()}
    if number is not None:
        waiting = [_pick(waiting, number, run or "")]
    if as_json:
        emit_json({"questions": [_question_json(turn, names) for turn in waiting]})
    elif number is not None:
        text = exact_or_spelled(conversation_text(waiting[0].messages))
        click.echo(text, color=True)  # else click takes escapes out
    else:
        click.echo(_list_text(waiting, names) if waiting else f"{db} holds no question that waits for an answer.")


def _list_text(waiting: list[Turn], names: dict[str, str]) -> str:
    header = ("run", "number", "turn", "operator", "asked (UTC)")
    rows = [(names[t.run_id], t.number, t.turn, t.operator, t.opened_at[:19].replace("T", " ")) for t in waiting]
    return fitted(header, rows, screen_width(), shrink={"run": 14})


@click.command(epilog="Example: kb-evolve tell rmsnorm-cpp-cpu-fp32 12 --reply reply.md")
@click.argument("run")
@click.argument("number", type=click.IntRange(min=0))
@click.option("--reply", required=True, type=click.File("rb"), help="File with the answer; - for standard input.")
@db_option
@json_option
def tell(run: str, number: int, reply: Any, db: str, as_json: bool) -> None:
    """Answer question NUMBER of RUN, as printed by `kb-evolve ask`."""
    from islands.store import open_store

    data = reply.read(LONGEST_REPLY_BYTES + 1)
    if not data.strip() or len(data) > LONGEST_REPLY_BYTES:
        found = "nothing" if not data.strip() else f"more than {LONGEST_REPLY_BYTES >> 20} MiB"
        raise click.UsageError(f"the answer must be a text of at most {LONGEST_REPLY_BYTES >> 20} MiB, found {found}")
    open_store(db, read_only=True).close()  # a database that is not there is not to be made
    with open_store(db) as store:
        found_run = find_run(store, run)
        waiting = [turn for turn in store.unanswered(found_run.id) if turn.model == "mailbox"]
        turn = _pick(waiting, number, run)
        usage = {"model": "mailbox"}
        answer = {"text": data.decode(errors="replace"), "reasoning": "", "finish_reason": "stop", "usage": usage}
        store.add_reply(found_run.id, turn.number, turn.turn, answer)
    if as_json:
        emit_json({"run": run, "number": number, "turn": turn.turn, "recorded": True})
    else:
        click.echo(f"Answer to question {number} (turn {turn.turn}) of {run} is recorded.")


def conversation_text(messages: tuple[dict[str, str], ...]) -> str:
    """Messages as one text, exactly as sent."""
    return "\n\n".join(f"# {message['role']}\n\n{message['content']}" for message in messages)


def turns_text(turns: list[Turn]) -> str:
    """What was sent for one attempt, and what came back."""
    parts = []
    for turn in turns:
        parts.append(f"=== turn {turn.turn}: {turn.operator} to {turn.model}, {turn.opened_at} ===")
        parts.append(conversation_text(turn.messages))
        parts.append(
            f"=== reply ({turn.finish_reason or 'none yet'}) ===\n{turn.text if turn.text is not None else ''}"
        )
    return "\n\n".join(parts)


def turn_json(turn: Turn) -> dict[str, Any]:
    """One turn for machines."""
    import dataclasses

    return dataclasses.asdict(turn)


def _question_json(turn: Turn, names: dict[str, str]) -> dict[str, Any]:
    return {**turn_json(turn), "run": names[turn.run_id]}


def _pick(waiting: list[Turn], number: int, run: str) -> Turn:
    from islands.store import StoreError

    for turn in waiting:
        if turn.number == number:
            return turn
    known = ", ".join(str(turn.number) for turn in waiting) or "none"
    raise StoreError(f"question {number} of {run} does not wait for an answer; those that do: {known}")

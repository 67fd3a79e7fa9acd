"""`number`: a model rewrites one line of a program with another number in it. What a model of 135M parameters can do.

The prompt is text to be completed: pairs of old and new lines, then an old line of the parent, drawn by the ticket's
seed, and the new one up to its first number. It ends inside the assistant's message, which llama.cpp's server takes as
the beginning of the reply. The whole line must be the old one with exactly one number changed; it then goes through
the same strict edit as every other model's.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from random import Random

from islands.candidate import Ticket
from mutators.dialogue import Message, Model, ModelError, Reply, Request
from mutators.edits import apply_edits
from mutators.proposal import Proposal, Refusal, refused

NAME = "number"
NUMBER = re.compile(r"(?<![\w.])\d+(?:\.\d+)?|(?<=-O)\d")
"""Numbers that stand for themselves (`int64_t` holds none), and a compiler's level of optimisation."""
LONGEST_NUMBER = 12
TASK = "Change one number in each line."
EXAMPLES = (
    ("TILE = 16", "TILE = 32"),
    ("for (int i = 0; i < 64; i += 8) {", "for (int i = 0; i < 64; i += 4) {"),
    ("#define WIDTH 128", "#define WIDTH 64"),
    ("float scale = 0.5f;", "float scale = 0.25f;"),
    ('FLAGS = ["-O1"]', 'FLAGS = ["-O3"]'),
)
PAIRS = "".join(f"old: {old}\nnew: {new}\n\n" for old, new in EXAMPLES)
VERSION = hashlib.sha256(repr((TASK, EXAMPLES)).encode()).hexdigest()


class Number:
    """The operator."""

    name = NAME

    def __init__(self, model: Model, model_name: str, temperature: float = 0.8) -> None:
        self.model, self.model_name, self.temperature = model, model_name, temperature
        self.arm = f"{NAME}@{model_name}"

    def propose(self, ticket: Ticket) -> Proposal:
        """The parent with one number changed, in a line that the ticket's seed picks."""
        source = ticket.parent.candidate.source
        lines = lines_with_numbers(source)
        if not lines:
            return refused(self.name, "the parent has no line of its own with a number in it", ticket)
        line = Random(ticket.seed).choice(lines)
        try:
            reply = self.model.ask(self._request(ticket, line))
        except ModelError as error:
            return refused(self.name, f"{error.kind}: {error.reason}", ticket)
        found = new_line(line, reply)
        edited = found if isinstance(found, Refusal) else apply_edits(source, as_edit(line, found))
        details = {"model": self.model_name, "arm": self.arm, "prompt_version": VERSION, "turns": 1}
        is_refused = isinstance(edited, Refusal)
        return Proposal(
            mutator=self.name,
            rationale="" if is_refused else f"Wrote `{found}` where `{line.strip()}` stood.",
            source=None if isinstance(edited, Refusal) else edited.source,
            refusal=edited.reason if isinstance(edited, Refusal) else None,
            parent_ids=(ticket.parent.candidate.id,),
            details=details,
            usage=reply.usage,
        )

    def _request(self, ticket: Ticket, line: str) -> Request:
        return Request(
            number=ticket.number,
            turn=0,
            operator=self.name,
            model=self.model_name,
            messages=(Message("user", TASK), Message("assistant", unfinished(_code_of(line).strip()))),
            parent_ids=(ticket.parent.candidate.id,),
            prompt_version=VERSION,
            max_tokens=64,
            temperature=self.temperature,
            parameters={"stop": ["\n"]},
        )


def lines_with_numbers(source: str) -> list[str]:
    """Lines of code that hold a number and stand in the source once; comments are left alone."""
    lines = source.split("\n")
    counts = Counter(line.strip() for line in lines)
    return [line for line in lines if counts[line.strip()] == 1 and NUMBER.search(_code_of(line))]


def unfinished(code: str) -> str:
    """The text to be completed: the examples, then the line, then the new line up to its first number."""
    return f"{PAIRS}old: {code}\nnew: {begun(code)}"


def begun(code: str) -> str:
    """A line up to its first number."""
    number = NUMBER.search(code)
    return code[: number.start()].rstrip() if number else code


def new_line(line: str, reply: Reply) -> str | Refusal:
    """The line that a reply completes, with the indentation and the comment of the old one.

    Servers differ in whether they repeat what the reply began with.
    """
    code = _code_of(line)
    said = reply.text.rpartition("new:")[2].strip().partition("\n")[0][:400]
    if not said.startswith(begun(code.strip())):
        said = begun(code.strip()) + said
    old, new = NUMBER.findall(code), NUMBER.findall(_code_of(said))
    if _without_numbers(code) != _without_numbers(_code_of(said)):
        return Refusal("more than a number was changed")
    changed = sum(before != after for before, after in zip(old, new, strict=True))
    if changed != 1:
        return Refusal(f"{changed} numbers were changed, expected 1")
    if max(map(len, new)) > LONGEST_NUMBER:
        return Refusal("the new number has too many digits")
    fresh = iter(new)
    return NUMBER.sub(lambda _: next(fresh), code) + line[len(code) :]


def as_edit(line: str, new: str) -> str:
    """A SEARCH/REPLACE block of one line."""
    return f"<<<<<<< SEARCH\n{line}\n=======\n{new}\n>>>>>>> REPLACE\n"


def _without_numbers(code: str) -> str:
    """What must stay: white space is the old line's own anyway."""
    return "".join(NUMBER.sub("#", code).split())


def _code_of(line: str) -> str:
    """A line without its comment."""
    return re.split(r"\s*(?://|#(?!define|include|pragma))", line, maxsplit=1)[0]

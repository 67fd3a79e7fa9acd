"""`knobs`: a model picks values for the tunables that a program declares, and nothing else; small models can do that.

The reply is one JSON object. Servers that can constrain a reply are told which values are allowed; what comes back is
checked here all the same. The prompt holds only words that passed SAFE_WORD, measured times and verdicts: no text of a
candidate gets into it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from islands.candidate import Evaluated, Ticket
from mutators.dialogue import Message, Model, ModelError, Reply, Request
from mutators.fence import CHAT_WORD, clean
from mutators.proposal import Proposal, Refusal, Usage, add_usage, known_sources, refused
from mutators.tunables import Tunable, find_tunables, set_values, values_of
from mutators.tune import family

NAME = "knobs"
SAFE_WORD = re.compile(r"[\w.+-]{1,32}", re.ASCII)
MOST_TUNABLES, MOST_CHOICES = 12, 64
READ_LIMIT = 20_000
"""Characters of a reply in which its JSON object is looked for."""
OBJECTS_LOOKED_AT = 50
SHOWN_LIMIT = 2_000
"""Characters of a refused reply that go back to the model."""

SYSTEM = """You choose values for the tunables of a compiled kernel so that it takes less time.
Every tunable takes one of its choices. Look at what was measured, then try something that was not.
Answer with one JSON object that names every tunable, and with nothing else."""
EXAMPLE = (
    "Choices:\nTILE: 8 16 32 64\nUNROLL: 1 2 4\n\nMeasured, slowest first:\nTILE=8 UNROLL=1: 4.31 ms\n"
    "TILE=16 UNROLL=1: 2.9 ms\n\nNext values:",
    '{"TILE": "32", "UNROLL": "2"}',
)
QUESTION = "Choices:\n{choices}\n\nMeasured, slowest first:\n{measured}\n\nNext values:"
AGAIN = "That does not do: {reason}. Next values:"
VERSION = hashlib.sha256("\0".join((SYSTEM, *EXAMPLE, QUESTION, AGAIN)).encode()).hexdigest()

Values = dict[str, str]


@dataclass(frozen=True, slots=True)
class KnobsOptions:
    """How the model is asked."""

    constrain: bool = True
    """Send a JSON schema of the allowed values; a server that refuses it is asked once more without."""
    temperature: float | None = 0.8
    max_tokens: int = 2_048
    """Most completion tokens; the answer needs a hundred, a reasoning model's thoughts need the rest."""
    rows: int = 12
    """Measured configurations in the prompt: the fastest, and the latest failures as a third of them."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Further parameters of the provider."""


@dataclass(frozen=True, slots=True)
class Space:
    """The tunables that the model sees, what of them is open, and the relatives that were measured."""

    tunables: tuple[Tunable, ...]
    open: dict[str, tuple[str, ...]]
    """Choices that at least one untried configuration has."""
    tried: list[Values]
    relatives: list[Evaluated]


class Knobs:
    """The operator. Changes tunable values only; what the lineage holds is not proposed again."""

    name = NAME

    def __init__(self, model: Model, model_name: str, options: KnobsOptions = KnobsOptions()) -> None:
        self.model, self.model_name, self.options = model, model_name, options
        self.arm = f"{NAME}@{model_name}"

    def propose(self, ticket: Ticket) -> Proposal:
        """The parent with the values that the model chose; one refused reply is sent back with its reason."""
        space = find_space(ticket)
        if isinstance(space, Refusal):
            return refused(self.name, space.reason, ticket)
        messages = first_messages(space, self.options.rows)
        usage, constrain, outcome = Usage(self.model_name), self.options.constrain, Refusal("nothing was asked")
        for turn in (0, 1):
            try:
                reply = self.model.ask(self._request(ticket, turn, messages, space if constrain else None))
            except ModelError as error:
                usage, outcome = add_usage(usage, error.usage), Refusal(f"{error.kind}: {error.reason}")
                if error.kind == "bad_request" and constrain and turn == 0:
                    constrain = False
                    continue
                return self._refused(ticket, outcome, usage, turn + 1)
            usage = add_usage(usage, reply.usage)
            chosen = choose(reply, space, ticket)
            if not isinstance(chosen, Refusal):
                return self._proposal(ticket, chosen, usage, turn + 1)
            outcome = chosen
            messages = (*messages, *follow_up(reply, chosen))
            space = narrowed(space, reply)
        return self._refused(ticket, outcome, usage, 2)

    def _request(self, ticket: Ticket, turn: int, messages: tuple[Message, ...], space: Space | None) -> Request:
        parameters = dict(self.options.parameters)
        if space is not None:
            parameters["response_format"] = response_format(space.open)
        return Request(
            number=ticket.number,
            turn=turn,
            operator=self.name,
            model=self.model_name,
            messages=messages,
            island=ticket.island,
            parent_ids=(ticket.parent.candidate.id,),
            prompt_version=VERSION,
            max_tokens=self.options.max_tokens,
            temperature=self.options.temperature,
            parameters=parameters,
        )

    def _refused(self, ticket: Ticket, refusal: Refusal, usage: Usage, turns: int) -> Proposal:
        proposal = refused(self.name, refusal.reason, ticket)
        return dataclasses.replace(proposal, usage=usage, details=self._details(turns))

    def _proposal(self, ticket: Ticket, values: Values, usage: Usage, turns: int) -> Proposal:
        before, source = values_of(ticket.parent.candidate.source), ticket.parent.candidate.source
        changed = ", ".join(f"{name} {before[name]} -> {new}" for name, new in values.items() if before[name] != new)
        return Proposal(
            mutator=self.name,
            rationale=f"Set {changed}: {self.model_name} chose it.",
            source=set_values(source, values),
            parent_ids=(ticket.parent.candidate.id,),
            details={**self._details(turns), "tunables": {**before, **values}},
            usage=usage,
        )

    def _details(self, turns: int) -> dict[str, Any]:
        return {"model": self.model_name, "arm": self.arm, "prompt_version": VERSION, "turns": turns}


def find_space(ticket: Ticket) -> Space | Refusal:
    """What can still be chosen for a ticket's parent."""
    source = ticket.parent.candidate.source
    declared = find_tunables(source)
    tunables = tuple(one for one in declared if is_plain(one))[:MOST_TUNABLES]
    if not tunables:
        return Refusal("the parent declares no tunables of plain words (`NAME = VALUE;  // tune: V1 V2 ...`)")
    relatives = family(ticket)
    others = {one.name: one.value for one in declared if one not in tunables}
    tried = [values_of(one.candidate.source) for one in relatives]
    tried = [values for values in tried if others.items() <= values.items() and is_declared(values, tunables)]
    size = math.prod(len(one.choices) for one in tunables)
    still_open = {
        one.name: tuple(
            choice
            for choice in one.choices
            if sum(values[one.name] == choice for values in tried) < size // len(one.choices)
        )
        for one in tunables
    }
    if not all(still_open.values()):
        return Refusal(f"all {size} configurations of this structure were tried")
    names = [one.name for one in tunables]
    return Space(tunables, still_open, [{name: values[name] for name in names} for values in tried], relatives)


def is_plain(tunable: Tunable) -> bool:
    """Whether a tunable may stand in a prompt: few short words of letters, digits and `.+-_`."""
    words = (tunable.name, *tunable.choices)
    return len(words) <= MOST_CHOICES and all(SAFE_WORD.fullmatch(word) for word in words)


def is_declared(values: Values, tunables: tuple[Tunable, ...]) -> bool:
    """Whether every value is among its tunable's choices."""
    return all(values.get(one.name) in one.choices for one in tunables)


def first_messages(space: Space, rows: int) -> tuple[Message, ...]:
    """The question with one worked example before it."""
    choices = "\n".join(f"{one.name}: {' '.join(space.open[one.name])}" for one in space.tunables)
    question = QUESTION.format(choices=choices, measured="\n".join(measured_rows(space, rows)))
    return (
        Message("system", SYSTEM),
        Message("user", EXAMPLE[0]),
        Message("assistant", EXAMPLE[1]),
        Message("user", question),
    )


def measured_rows(space: Space, rows: int) -> list[str]:
    """The latest failures, then the fastest configurations, the fastest last."""
    timed = [one for one in space.relatives if one.evaluation.kernel_ms is not None]
    timed.sort(key=lambda one: -(one.evaluation.kernel_ms or 0.0))
    failed = [one for one in space.relatives if one.evaluation.kernel_ms is None][-max(1, rows // 3) :]
    return [_row(one, space.tunables) for one in (*failed, *timed[-max(1, rows - len(failed)) :])]


def _row(one: Evaluated, tunables: tuple[Tunable, ...]) -> str:
    values = values_of(one.candidate.source)
    words = (f"{tunable.name}={values[tunable.name]}" for tunable in tunables)
    ms = one.evaluation.kernel_ms
    return f"{' '.join(words)}: {f'{ms:.3g} ms' if ms is not None else one.evaluation.verdict.value}"


def response_format(choices: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    """OpenAI's `response_format` that allows one of the choices for each name."""
    schema = {
        "type": "object",
        "properties": {name: {"type": "string", "enum": list(values)} for name, values in choices.items()},
        "required": list(choices),
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "values", "strict": True, "schema": schema}}


def choose(reply: Reply, space: Space, ticket: Ticket) -> Values | Refusal:
    """The values that a reply names, all of them declared and together not tried yet."""
    found = find_object(reply.text)
    if found is None:
        cut = ", which was cut off," if reply.finish_reason == "length" else ""
        return Refusal(f"expected one JSON object, the reply{cut} holds none; it begins {quoted(reply.text)}")
    known = {one.name: one for one in space.tunables}
    values: Values = {}
    for name, value in found.items():
        if name not in known:
            return Refusal(f"unknown tunable {quoted(name)}; declared are {', '.join(known)}")
        word = word_of(value)
        if word not in known[name].choices:
            return Refusal(f"{name} must be one of {' '.join(known[name].choices)}, found {quoted(str(value))}")
        values[name] = word
    source = set_values(ticket.parent.candidate.source, values)
    if hashlib.sha256(source.encode()).hexdigest() in known_sources(ticket):
        return Refusal("these values were measured already: change at least one")
    return values


def narrowed(space: Space, reply: Reply) -> Space:
    """What is left for the second turn: the values of a repeated configuration with another one for one tunable.

    Small models say the same again; with this schema they cannot. A reply that named no such values changes nothing.
    """
    found = find_object(reply.text)
    if found is None:
        return space
    said = {one.name: word_of(found.get(one.name, one.value)) for one in space.tunables}
    if not is_declared(said, space.tunables):
        return space
    fresh = {
        one.name: tuple(choice for choice in one.choices if {**said, one.name: choice} not in space.tried)
        for one in space.tunables
    }
    name = max(fresh, key=lambda one: len(fresh[one]))
    if not fresh[name]:
        return space
    return dataclasses.replace(space, open={**{one: (value,) for one, value in said.items()}, name: fresh[name]})


def word_of(value: Any) -> str:
    """A JSON value as a source would write it: 16 and "16" are the same, 16.0 too, true is no number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value.strip() if isinstance(value, str) else json.dumps(value)[:READ_LIMIT]


def find_object(text: str) -> dict[str, Any] | None:
    """The first JSON object in a text that has members; None where there is none."""
    text = text[:READ_LIMIT]
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(OBJECTS_LOOKED_AT):
        if start < 0:
            return None
        try:
            found, _end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if found:
            return dict(found)
        start = text.find("{", start + 1)
    return None


def follow_up(reply: Reply, refusal: Refusal) -> tuple[Message, ...]:
    """What is said after a refused reply: the reply itself, capped, and the reason."""
    said = harmless(reply.text, SHOWN_LIMIT) or "(nothing)"
    return Message("assistant", said), Message("user", AGAIN.format(reason=refusal.reason))


def harmless(text: str, limit: int) -> str:
    """The beginning of a reply without control characters and without control words of chat templates."""
    return CHAT_WORD.sub(lambda found: f"{found[0]} ", clean(text[:limit]))


def quoted(text: str) -> str:
    return repr(harmless(text, 40))

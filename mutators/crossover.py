"""`crossover`: a child with each part (flags, tunable values, whole functions) from one of two parents."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from islands.candidate import Ticket
from mutators.proposal import Proposal, Refusal, known_sources, refused
from mutators.source import KernelSource, parse_source
from mutators.tunables import find_tunables, set_values

ATTEMPTS = 16


@dataclass(frozen=True, slots=True)
class CrossoverOptions:
    """How much comes from the second parent."""

    take_probability: float = 0.5
    """For each part in which the parents differ."""


class Crossover:
    """The mutator. The first parent's file is the frame; parts of an inspiration are put into it."""

    name = "crossover"

    def __init__(self, options: CrossoverOptions = CrossoverOptions()) -> None:
        self.options = options

    def propose(self, ticket: Ticket) -> Proposal:
        """A child that equals neither parent nor anything in the lineage."""
        own = ticket.parent.candidate
        first = parse_source(own.source)
        if isinstance(first, Refusal):
            return refused(self.name, first.reason, ticket)
        random = Random(ticket.seed)
        others = [one.candidate for one in ticket.inspirations if one.candidate.source_sha256 != own.source_sha256]
        if not others:
            return refused(self.name, "there is no second parent that differs from the first", ticket)
        known = known_sources(ticket)
        random.shuffle(others)
        reason = "no mix of the parents differs from both and from their relatives"
        for other in others:
            second = parse_source(other.source)
            if isinstance(second, Refusal):
                reason = second.reason
                continue
            for _ in range(ATTEMPTS):
                child, taken = self._mix(first, second, random)
                if taken and child.sha256 not in known:
                    rationale = f"Take {', '.join(taken)} from {other.id}, the rest from {own.id}."
                    details = {"taken": taken, "second_parent": other.id}
                    return Proposal(self.name, rationale, child.file, None, (own.id, other.id), details)
        return refused(self.name, reason, ticket)

    def _mix(self, first: KernelSource, second: KernelSource, random: Random) -> tuple[KernelSource, list[str]]:
        child = first
        taken: list[str] = []
        for name in _differing_functions(first, second):
            if random.random() < self.options.take_probability:
                changed = _with_function(child, second, name)
                if not isinstance(changed, Refusal):
                    child, taken = changed, [*taken, f"function {name}"]
        child, names = self._mix_tunables(child, second, random)
        taken += names
        needs_threads = any(part.startswith("function") for part in taken) and "-fopenmp" in second.flags
        if first.flags != second.flags and (needs_threads or random.random() < self.options.take_probability):
            changed = child.with_flags(second.flags)
            if not isinstance(changed, Refusal):
                child, taken = changed, [*taken, "compiler flags"]
        return child, taken

    def _mix_tunables(
        self, child: KernelSource, second: KernelSource, random: Random
    ) -> tuple[KernelSource, list[str]]:
        theirs = {tunable.name: tunable.value for tunable in find_tunables(second.file)}
        values = {
            tunable.name: theirs[tunable.name]
            for tunable in find_tunables(child.file)
            if theirs.get(tunable.name, tunable.value) != tunable.value
            and theirs[tunable.name] in tunable.choices
            and random.random() < self.options.take_probability
        }
        changed = parse_source(set_values(child.file, values))
        if isinstance(changed, Refusal) or not values:
            return child, []
        return changed, [f"{name} = {value}" for name, value in values.items()]


def _signatures(kernel: KernelSource) -> dict[str, tuple[str, str]]:
    """Function name -> (signature without white space and __restrict__, whole text); overloaded names left out."""
    from mutators.cpp.tree import function_name, functions, parse, text

    found: dict[str, tuple[str, str]] = {}
    names = []
    for function in functions(parse(kernel.cpp)):
        body = function.child_by_field_name("body")
        if body is None:
            continue
        head = function.text[: body.start_byte - function.start_byte].decode()
        signature = "".join(head.replace("__restrict__", "").split())
        names.append(function_name(function))
        found[function_name(function)] = (signature, text(function))
    return {name: entry for name, entry in found.items() if names.count(name) == 1}


def _differing_functions(first: KernelSource, second: KernelSource) -> list[str]:
    """Names of functions that both have with one signature and different bodies."""
    ours, theirs = _signatures(first), _signatures(second)
    shared = [name for name in ours if name in theirs and ours[name][0] == theirs[name][0]]
    return [name for name in shared if ours[name][1] != theirs[name][1]]


def _with_function(child: KernelSource, second: KernelSource, name: str) -> KernelSource | Refusal:
    """The child with the second parent's function, and with what that function needs: constants, helpers, includes."""
    own, other = _signatures(child).get(name), _signatures(second)[name]
    if own is None or child.cpp.count(own[1]) != 1:
        return Refusal(f"function {name} stands in the text more than once")
    cpp = child.cpp.replace(own[1], other[1])
    return child.with_cpp(_with_needs(cpp, second, other[1]))


def _with_needs(cpp: str, second: KernelSource, body: str) -> str:
    """The text with the second parent's includes, tunables and helper functions that `body` uses and it lacks."""
    import re

    includes = [line for line in second.cpp.splitlines() if line.startswith("#include") and line not in cpp]
    helpers, waiting = [], [body]
    theirs, ours = _definitions(second.cpp), {name for name, _ in _definitions(cpp)}
    while waiting:
        words = set(re.findall(r"\w+", waiting.pop()))
        wanted = [(name, whole) for name, whole in theirs if name in words and name not in ours and whole != body]
        ours.update(name for name, _ in wanted)  # all overloads of a name come together
        helpers += [whole for _, whole in wanted]
        waiting += [whole for _, whole in wanted]
    needed = "\n".join([body, *helpers])
    present = {tunable.name for tunable in find_tunables(cpp)}
    lines = second.cpp.splitlines()
    constants = [
        next(line for line in lines if re.search(rf"\b{tunable.name}\s*=", line) or f"define {tunable.name}" in line)
        for tunable in find_tunables(second.cpp)
        if tunable.name not in present and re.search(rf"\b{tunable.name}\b", needed)
    ]
    order = [whole for _, whole in theirs if whole in helpers]
    return _inserted(cpp, includes, [*constants, *order])


def _definitions(cpp: str) -> list[tuple[str, str]]:
    """Name and whole text of every function definition in the order of the text.

    Overloads are included, and so are functions that the grammar does not understand whole, such as those
    that call __builtin_bit_cast with a type.
    """
    from mutators.cpp.tree import function_name, parse, text, walk

    found = [node for node in walk(parse(cpp)) if node.type == "function_definition"]
    return [(function_name(node), text(node)) for node in found if node.child_by_field_name("body") is not None]


def _inserted(cpp: str, includes: list[str], lines: list[str]) -> str:
    """The text with includes before its first and other lines after its last #include."""
    import re

    matches = list(re.finditer(r"^#include[^\n]*\n", cpp, re.MULTILINE))
    start, end = (matches[0].start(), matches[-1].end()) if matches else (0, 0)
    head = "".join(f"{line}\n" for line in includes)
    tail = "".join(f"{line}\n" for line in lines)
    return cpp[:start] + head + cpp[start:end] + tail + cpp[end:]

"""`transform`: rewrites of the C++ text and its flags that are legal by a conservative check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from islands.candidate import Ticket
from mutators.proposal import Proposal, Refusal, known_sources, refused
from mutators.source import KernelSource, parse_source

STRONG = "-O3"
"""A parent without it is still bare: it gets a recipe first."""


@dataclass(frozen=True, slots=True)
class TransformOptions:
    """What the operator may do."""

    allow_fast_math: bool = False
    compound_probability: float = 0.5
    """How often a proposal joins several moves: a recipe not tried yet, else two or three single moves."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A changed kernel with the moves that led to it (mutators.cpp.moves.Move, in order)."""

    kernel: KernelSource
    moves: tuple[Any, ...]
    recipe: str = ""


class Transform:
    """The mutator. Deterministic: all choices come from the ticket's seed."""

    name = "transform"

    def __init__(self, options: TransformOptions = TransformOptions()) -> None:
        self.options = options

    def propose(self, ticket: Ticket) -> Proposal:
        """One or several legal moves whose outcome the lineage does not hold yet."""
        kernel = parse_source(ticket.parent.candidate.source)
        if isinstance(kernel, Refusal):
            return refused(self.name, kernel.reason, ticket)
        random = Random(ticket.seed)
        known = known_sources(ticket)
        for rewrite in self._candidates(kernel, random):
            if rewrite.kernel.sha256 not in known:
                return _proposal(ticket, rewrite)
        return refused(self.name, "every legal move from this parent was tried already, or none is legal", ticket)

    def _candidates(self, kernel: KernelSource, random: Random) -> Iterator[Rewrite]:
        """Changed kernels in the order in which they are to be tried."""
        is_bare = STRONG not in kernel.flags and kernel.flag_part is not None
        is_compound = random.random() < self.options.compound_probability
        if is_bare or is_compound:
            yield from _recipes(kernel, random, is_bare)
        if is_compound:
            yield from self._chains(kernel, random)
        yield from self._singles(kernel, random)
        yield from _recipes(kernel, random, is_bare)
        yield from self._chains(kernel, random, attempts=12)

    def _singles(self, kernel: KernelSource, random: Random) -> Iterator[Rewrite]:
        """Every legal single move: a random kind first, then a random place of that kind."""
        from mutators.cpp.catalogue import finders

        kinds = list(finders(self.options.allow_fast_math).values())
        random.shuffle(kinds)
        waiting: list[list[Any]] = []
        for find in kinds:  # a search runs when its turn comes: most proposals need but the first few
            found = find(kernel).moves
            waiting.append(random.sample(found, len(found)))
            yield from _made(kernel, waiting[-1])
        while any(waiting):
            for moves in waiting:
                yield from _made(kernel, moves)

    def _chains(self, kernel: KernelSource, random: Random, attempts: int = 4) -> Iterator[Rewrite]:
        """Two or three single moves, one after the other."""
        for _ in range(attempts):
            moves: tuple[Any, ...] = ()
            current = kernel
            for _ in range(random.choice((2, 3))):
                step = next(self._singles(current, random), None)
                if step is not None:
                    current, moves = step.kernel, moves + step.moves
            if len(moves) > 1:
                yield Rewrite(current, moves)


def _made(kernel: KernelSource, moves: list[Any]) -> Iterator[Rewrite]:
    """The outcome of the last of the moves, which is taken away; nothing where there is none or it cannot be made."""
    from mutators.cpp.moves import apply_moves

    if moves:
        move = moves.pop()
        changed = apply_moves(kernel, (move,))
        if not isinstance(changed, Refusal):
            yield Rewrite(changed, (move,))


def _recipes(kernel: KernelSource, random: Random, in_order: bool) -> Iterator[Rewrite]:
    """The recipes' outcomes, the strongest first for a bare kernel, in random order for others."""
    from mutators.cpp.catalogue import RECIPES, everywhere

    names = list(RECIPES)
    if not in_order:
        random.shuffle(names)
    for name in names:
        current = kernel
        moves: tuple[Any, ...] = ()
        for kind in RECIPES[name]:
            current, made = everywhere(current, kind)
            moves += made
        if moves:
            yield Rewrite(current, moves, name)


def _proposal(ticket: Ticket, rewrite: Rewrite) -> Proposal:
    reasons = list(dict.fromkeys(move.why for move in rewrite.moves))
    listed = "; ".join(reasons[:6]) + (f"; and {len(reasons) - 6} more such changes" if len(reasons) > 6 else "")
    labels = sorted({move.label for move in rewrite.moves if move.label})
    notes = f" ({', '.join(labels)}: last bits may differ)" if labels else ""
    return Proposal(
        mutator=Transform.name,
        rationale=f"{listed[:1].upper()}{listed[1:]}{notes}.",
        source=rewrite.kernel.file,
        parent_ids=(ticket.parent.candidate.id,),
        details={
            "moves": [{"kind": move.kind, "site": move.site, "label": move.label} for move in rewrite.moves],
            "recipe": rewrite.recipe,
        },
    )

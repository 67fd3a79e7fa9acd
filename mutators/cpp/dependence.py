"""Whether a loop's iterations are independent: conservative, so "no" means "not shown"."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from mutators.cpp.effects import Access, Effects, effects_of
from mutators.cpp.loops import Facts, Loop, atom_places, lowers, shown_nonnegative, step_of, uppers
from mutators.cpp.polynomial import ONE, Poly, variable
from mutators.cpp.reductions import reduction_of
from mutators.cpp.scope import Declaration, assigned_places, declarations_in, declared_inside
from mutators.cpp.tree import ancestors, text, walk


@dataclass(frozen=True, slots=True)
class Independence:
    """The answer on one loop."""

    obstacle: str | None
    """Why iterations may depend on each other; None where they do not."""
    reductions: tuple[tuple[str, str], ...] = ()
    """(accumulator, operator) pairs: the only outer scalars that iterations share."""
    places: tuple[int, ...] = ()
    """The accumulators' identities, in the same order."""

    @property
    def holds(self) -> bool:
        return self.obstacle is None


def independence(facts: Facts, loop: Loop, outer: Loop | None = None) -> Independence:
    """Whether different iterations of `loop` never touch the same element or scalar, one of them writing.

    With `outer`, an enclosing loop, the claim also covers iterations of `loop` in different iterations of `outer`.
    Reductions (sum, product, max, min into an outer scalar used for nothing else) are allowed and listed.
    """
    obstacle = jump_out(loop)
    if obstacle is not None:
        return Independence(obstacle)
    effects = effects_of(facts, loop.body)
    if effects.obstacles:
        return Independence(effects.obstacles[0])
    reductions: dict[int, tuple[str, str]] = {}
    for declaration, node in effects.scalar_writes:
        if declared_inside(declaration, loop.body) or declaration.place in reductions:
            continue
        operator = reduction_of(declaration, loop.body)
        if operator is None:
            return Independence(f"{declaration.name} is carried from one iteration to the next ({text(node)})")
        reductions[declaration.place] = (declaration.name, operator)
    obstacle = _array_conflict(facts, loop, effects, outer)
    return Independence(obstacle, tuple(reductions.values()), tuple(reductions))


def jump_out(loop: Loop) -> str | None:
    """The jump that leaves the loop before its end, if there is one."""
    kinds = ("for_statement", "while_statement", "do_statement", "for_range_loop", "switch_statement")
    for node in walk(loop.body):
        if node.type in ("return_statement", "goto_statement", "throw_statement"):
            return f"it may leave the loop early ({text(node)})"
        if node.type == "break_statement":
            around = next(scope for scope in ancestors(node) if scope.type in kinds)
            if around == loop.node:
                return "it may leave the loop early (break)"
    return None


def _array_conflict(facts: Facts, loop: Loop, effects: Effects, outer: Loop | None) -> str | None:
    shared = [access for access in effects.accesses if not _is_private(access, loop)]
    written = {access.base.place: access.base for access in shared if access.is_write}
    for place, base in written.items():
        same = [access for access in shared if access.base.place == place]
        obstacle = _element_conflict(facts, loop, same, outer)
        if obstacle is not None:
            return f"{base.name}: {obstacle}"
        if not _is_own_memory(base):
            return f"{base.name} may share its memory with another tensor"
        for access in shared:
            if frozenset((base.name, access.base.name)) in facts.aliased and access.base.place != place:
                return f"{base.name} and {access.base.name} may be the same array: a call passes one tensor for both"
    return None


def _is_own_memory(base: Declaration) -> bool:
    """Whether no other name stands for the same memory (pointer parameters: see `Facts.aliased`)."""
    if base.is_object or base.kind in ("pointer", "reference"):
        return True
    made = text(base.value) if base.value is not None else ""
    return any(factory in made for factory in ("empty", "zeros", "ones", "full"))


def _is_private(access: Access, loop: Loop) -> bool:
    base = access.base
    return base.is_object and declared_inside(base, loop.body) and not base.is_static


def _element_conflict(facts: Facts, loop: Loop, accesses: list[Access], outer: Loop | None) -> str | None:
    """Why two iterations may touch one element of an array, or None."""
    changed = assigned_places(loop.body) - set(facts.loops)
    indexes = []
    for access in accesses:
        name = text(access.node)
        if access.index is None:
            return f"the element that {name} touches cannot be told"
        for atom in access.index.atoms:
            places = atom_places(atom)
            if places is None or places & changed:
                return f"the index of {name} changes in a way that is not followed"
        indexes.append(access.index)
    if _all_apart(facts, loop, indexes, outer) or _apart_by_row(facts, loop, indexes, outer):
        return None
    names = dict.fromkeys(text(access.node) for access in accesses)
    return f"{' and '.join(list(names)[:2])} may touch one element in different iterations of {loop.variable.name}"


def _all_apart(facts: Facts, loop: Loop, indexes: list[Poly], outer: Loop | None) -> bool:
    """Whether no two of the indexes can be equal in different iterations.

    Each index is bounded below and above by polynomials in the loop variable i, the inner variables replaced by
    their bounds: i*S + low <= index <= i*S + high. Iterations i and i' lie at least step*S apart, so no element is
    shared if S is the same for all accesses and step*S > highest high - lowest low.
    """
    ranges = [_range(facts, loop, index, outer) for index in dict.fromkeys(indexes)]
    return all(
        any(_apart(facts, loop, high, low) for high in highs for low in lows)
        for (highs, _), (_, lows) in itertools.product(ranges, ranges)
    )


def _apart_by_row(facts: Facts, loop: Loop, indexes: list[Poly], outer: Loop | None) -> bool:
    """The same for index = row*M + column with 0 <= column < M: equal only if rows and columns both are."""
    candidates = sorted({atom for index in indexes for atom in index.atoms & (facts.positive | facts.natural)})
    for atom in candidates:
        rows, columns = zip(*(_divided(index, atom) for index in indexes), strict=True)
        if not all(_fits(facts, loop, column, variable(atom), outer) for column in columns):
            continue
        if _all_apart(facts, loop, list(rows), outer) or _all_apart(facts, loop, list(columns), outer):
            return True
    return False


def _divided(index: Poly, atom: str) -> tuple[Poly, Poly]:
    """(q, r) with index = q * atom + r and no term of r holding the atom."""
    quotient, rest = Poly(), Poly()
    for key, coefficient in index.terms:
        if atom in key:
            reduced = list(key)
            reduced.remove(atom)
            quotient = quotient + Poly.of({tuple(reduced): coefficient})
        else:
            rest = rest + Poly.of({key: coefficient})
    return quotient, rest


def _fits(facts: Facts, loop: Loop, column: Poly, width: Poly, outer: Loop | None) -> bool:
    """Whether 0 <= column < width over all the loops."""
    highs, lows = _range(facts, loop, column, outer)
    highs = [bound for high in highs for bound in (high, *_without_outer(facts, high, True))]
    lows = [bound for low in lows for bound in (low, *_without_outer(facts, low, False))]
    below = any(shown_nonnegative(facts, width - ONE - high) for high in highs)
    return below and any(shown_nonnegative(facts, low) for low in lows)


def _range(facts: Facts, loop: Loop, index: Poly, outer: Loop | None) -> tuple[list[Poly], list[Poly]]:
    """(upper bounds, lower bounds) of the index over the inner loops' variables."""
    return _extremes(facts, loop, index, outer, True), _extremes(facts, loop, index, outer, False)


def _extremes(facts: Facts, loop: Loop, index: Poly, outer: Loop | None, upper: bool) -> list[Poly]:
    polys = [index]
    for inner in _inner_first(facts, loop, outer):
        polys = [
            bound for poly in polys[:4] for bound in ([poly] if inner.atom not in poly.atoms else
                                                       _bounded(facts, inner, poly, upper, loop))
        ]  # fmt: skip
    hidden = _declared_places(loop, facts) | ({outer.variable.place} if outer is not None else set())
    known = [poly for poly in polys if not any(_hides(atom, hidden) for atom in poly.atoms - {loop.atom})]
    return known


def _hides(atom: str, hidden: set[int]) -> bool:
    """Whether the atom's value may differ between iterations without saying how."""
    places = atom_places(atom)
    return places is None or bool(places & hidden)


def _declared_places(loop: Loop, facts: Facts) -> set[int]:
    """Identities of everything declared in the loop: they mean something else in each iteration."""
    found = {place for place, inner in facts.loops.items() if declared_inside(inner.variable, loop.node)}
    for node in walk(loop.body):
        if node.type == "declaration":
            found |= {declaration.place for declaration in declarations_in(node)}
    return found


def _inner_first(facts: Facts, loop: Loop, outer: Loop | None) -> list[Loop]:
    """The canonical loops in the body, innermost first; then the outer loop, over which the claim must hold too."""
    inner = [other for other in facts.loops.values() if declared_inside(other.variable, loop.body)]
    ordered = sorted(inner, key=lambda other: -other.node.start_byte)
    return ordered + ([outer] if outer is not None else [])


def _bounded(facts: Facts, inner: Loop, poly: Poly, upper: bool, tested: Loop | None = None) -> list[Poly]:
    """The polynomial with the inner variable at the end of its range that makes it largest (or smallest).

    An upper end that grows with the tested loop's variable (`j <= i`) is also offered with that one at its own end.
    """
    parts = poly.split(inner.atom)
    if parts is None:
        return []
    slope, rest = parts
    if shown_nonnegative(facts, slope):
        takes_upper = upper
    elif shown_nonnegative(facts, -slope):
        takes_upper = not upper
    else:
        return []
    last = Poly() if inner.is_inclusive else ONE
    ends = [end - last for end in uppers(facts, inner.upper)] if takes_upper else lowers(facts, inner.lower)
    if tested is not None and takes_upper:
        ends += [widest for end in ends if tested.atom in end.atoms for widest in _bounded(facts, tested, end, True)]
    return [slope * end + rest for end in ends]


def _apart(facts: Facts, loop: Loop, high: Poly, low: Poly) -> bool:
    """Whether step * slope > high - low for both signs of the slope that the two share."""
    upper, lower = high.split(loop.atom), low.split(loop.atom)
    if upper is None or lower is None or upper[0] != lower[0] or loop.atom in upper[0].atoms:
        return False
    spread = upper[1] - lower[1]
    for slope in (upper[0], -upper[0]):
        gap = step_of(facts, loop) * slope - ONE - spread
        for bounded in (gap, *_without_outer(facts, gap, False)):
            if shown_nonnegative(facts, bounded):
                return True
    return False


def _without_outer(facts: Facts, poly: Poly, upper: bool) -> list[Poly]:
    """The polynomial with loop variables replaced by the bounds that make it largest or smallest."""
    polys = [poly]
    for loop in facts.loops.values():
        polys = [
            bound for poly in polys[:4] for bound in ([poly] if loop.atom not in poly.atoms else
                                                      _bounded(facts, loop, poly, upper))
        ]  # fmt: skip
    return polys

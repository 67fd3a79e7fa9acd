"""Moves that change the order of loops: tiling, interchange, blocked accumulators, fusion."""

from __future__ import annotations

from mutators.cpp.analysis import Site, independent, sites
from mutators.cpp.dependence import independence, jump_out
from mutators.cpp.effects import effects_of
from mutators.cpp.loops import Loop, canonical, is_innermost, only_statement, pragmas_before
from mutators.cpp.moves import Found, Move, fresh_name
from mutators.cpp.scope import mentions
from mutators.cpp.tree import Edit, Node, bracketed, indent_of, named, replace_within, text
from mutators.source import KernelSource

TILES = "8 16 32 64 128 256 512"


def find_interchange(kernel: KernelSource) -> Found:
    """Swapping two perfectly nested loops where no element is touched in a new order."""
    moves, refusals = [], []
    for site in sites(kernel):
        inner = nested_pair(site)
        if inner is None:
            continue
        reason = interchange_obstacle(site, inner)
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        why = f"run {inner.variable.name} outside {site.name}: memory may then be walked in its own order"
        moves.append(Move("interchange", site.name, why, _swapped(site.loop, inner)))
    return Found(tuple(moves), tuple(refusals))


def nested_pair(site: Site) -> Loop | None:
    """The canonical loop that is all of the site's body, no pragma in between."""
    statement = only_statement(site.loop.body)
    if statement is None or statement.type != "for_statement":
        return None
    return canonical(statement)


def interchange_obstacle(site: Site, inner: Loop) -> str | None:
    """Why the two loops may not be swapped.

    Sound because one of the two carries no dependence at all: if the outer is independent, every dependence has
    distance (0, d) and becomes (d, 0); if the inner is independent even across iterations of the outer, (d, 0)
    becomes (0, d). Either way the order of the two accesses is kept.
    """
    if site.pragmas or pragmas_before(inner.node):
        return "a pragma stands before one of the loops"
    for expression in (inner.lower, inner.upper, inner.step):
        if expression is not None and mentions(expression, site.loop.variable.place):
            return "the inner loop's bounds change with the outer one"
    jump = jump_out(site.loop) or jump_out(inner)
    if jump is not None:
        return jump
    found = independent(site)
    if found.holds and not found.reductions:
        return None
    across = independence(site.facts, inner, site.loop)
    if across.holds and not across.reductions:
        return None
    if found.reductions or across.reductions:
        return "the order of a scalar reduction would change"
    return found.obstacle


def _swapped(outer: Loop, inner: Loop) -> tuple[Edit, ...]:
    return (
        Edit(outer.node.start_byte, outer.body.start_byte, f"for {inner.header} "),
        Edit(inner.node.start_byte, inner.body.start_byte, f"for {outer.header} "),
    )


def find_strip(kernel: KernelSource) -> Found:
    """A loop cut into tiles of a tunable length: always legal, and a start for other moves."""
    moves, refusals = [], []
    for site in sites(kernel):
        if site.pragmas:
            refusals.append((site.name, "a pragma stands before the loop"))
        elif not is_innermost(site.loop) and not site.enclosing:
            name = fresh_name(kernel, "TILE")
            start, rest = _tiled(kernel, site.loop, name)
            edit = Edit(site.loop.node.start_byte, site.loop.body.start_byte, f"{start} {rest} ")
            why = f"cut {site.name} into tiles of a tunable length"
            constants = ((name, "32", TILES),)
            moves.append(Move("strip_mine", site.name, why, (edit,), tunables=constants, includes=("algorithm",)))
    return Found(tuple(moves), tuple(refusals))


def find_tile(kernel: KernelSource) -> Found:
    """Two perfectly nested loops in square tiles, where they may be interchanged: both arrays stay in cache."""
    moves, refusals = [], []
    for site in sites(kernel):
        inner = nested_pair(site)
        if inner is None:
            continue
        reason = interchange_obstacle(site, inner)
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        name = fresh_name(kernel, "TILE")
        (outer_start, outer_rest), (inner_start, inner_rest) = (
            _tiled(kernel, loop, name) for loop in (site.loop, inner)
        )
        edits = (
            Edit(site.loop.node.start_byte, site.loop.body.start_byte, f"{outer_start} {inner_start} {outer_rest} "),
            Edit(inner.node.start_byte, inner.body.start_byte, f"{inner_rest} "),
        )
        why = (
            f"walk {site.name} and {inner.variable.name} in square tiles, so that what is read again is still in cache"
        )
        constants = ((name, "32", TILES),)
        moves.append(Move("tile", site.name, why, edits, tunables=constants, includes=("algorithm",)))
    return Found(tuple(moves), tuple(refusals))


def _tiled(kernel: KernelSource, loop: Loop, tile: str) -> tuple[str, str]:
    """(the loop over tiles, the loop within one) as for headers; both evaluate the bound anew, it is invariant."""
    kind, name = loop.variable.type, loop.variable.name
    block = fresh_name(kernel, f"{name}_tile")
    upper = f"{bracketed(loop.upper)} + 1" if loop.is_inclusive else bracketed(loop.upper)
    step = text(loop.step) if loop.step is not None else "1"
    stride = f"{tile} * ({step})" if loop.step is not None else tile
    within = f"std::min<{kind}>({block} + {stride}, {upper})"
    advance = f"{name} += {step}" if loop.step is not None else f"++{name}"
    return (
        f"for ({kind} {block} = {text(loop.lower)}; {block} < {upper}; {block} += {stride})",
        f"for ({kind} {name} = {block}; {name} < {within}; {advance})",
    )


def find_fusion(kernel: KernelSource) -> Found:
    """Two neighbouring loops over the same range in one, where they meet only in the same iteration."""
    moves, refusals = [], []
    found = sites(kernel)
    for site in found:
        following = _next_loop(site, found)
        if following is None:
            continue
        reason = _fusion_obstacle(site, following)
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        first, second = site.loop, following.loop
        margin = indent_of(first.node)
        renamed = _renamed_body(second, first.variable.name)
        body = f"{{\n{margin}    {text(first.body)}\n{margin}    {renamed}\n{margin}}}"
        edit = Edit(first.body.start_byte, second.node.end_byte, body)
        why = f"run {site.name} and the loop after it in one pass: what the first writes is still in a register"
        moves.append(Move("fuse", site.name, why, (edit,)))
    return Found(tuple(moves), tuple(refusals))


def _next_loop(site: Site, found: tuple[Site, ...]) -> Site | None:
    node = site.loop.node.next_named_sibling
    while node is not None and node.type == "comment":
        node = node.next_named_sibling
    return next((other for other in found if node is not None and other.loop.node == node), None)


def _fusion_obstacle(first: Site, second: Site) -> str | None:
    one, two = first.loop, second.loop
    same = text(one.lower) == text(two.lower) and text(one.upper) == text(two.upper)
    steps = [text(loop.step) if loop.step is not None else "1" for loop in (one, two)]
    if not same or one.is_inclusive != two.is_inclusive or steps[0] != steps[1]:
        return "the two loops run over different ranges"
    if first.pragmas or second.pragmas:
        return "a pragma stands before one of the loops"
    for site in (first, second):
        if not independent(site).holds:
            return independent(site).obstacle
    for own, other in ((first, second), (second, first)):
        for place in independent(own).places:
            if mentions(other.loop.body, place):
                return "one loop uses what the other sums up"
    return _cross_obstacle(first, second)


def _cross_obstacle(first: Site, second: Site) -> str | None:
    """Why an element that one loop writes may be touched by the other in another iteration.

    Elements are compared by equal indices with the two loop variables identified: an array that either writes must
    have, in both bodies, one and the same index in each access.
    """
    effects = [effects_of(site.facts, site.loop.body) for site in (first, second)]
    written = {access.base.place: access.base for effect in effects for access in effect.accesses if access.is_write}
    for place, base in written.items():
        if any(base.name in pair for pair in first.facts.aliased):
            return f"{base.name} may be one array with another: a call passes one tensor for both"
        indexes = set()
        for site, effect in zip((first, second), effects, strict=True):
            for access in effect.accesses:
                if access.base.place == place:
                    if access.index is None:
                        return f"the element of {base.name} cannot be told"
                    parts = access.index.split(site.loop.atom)
                    indexes.add(parts)
        both = all(any(access.base.place == place for access in effect.accesses) for effect in effects)
        if both and (len(indexes) != 1 or None in indexes or not is_innermost(first.loop)):
            return f"{base.name} may be touched by both loops in different iterations"
    return None


def _renamed_body(loop: Loop, name: str) -> str:
    places = {(node.start_byte, node.end_byte): name for node in mentions(loop.body, loop.variable.place)}
    renamed = replace_within(loop.body, places)
    return renamed if loop.body.type == "compound_statement" else "{ " + renamed + " }"


def body_statements(loop: Loop) -> list[Node]:
    """The statements of a loop body."""
    return named(loop.body) if loop.body.type == "compound_statement" else [loop.body]

"""Moves on accumulators: several partial sums instead of one, and a block of sums that are built up together."""

from __future__ import annotations

from mutators.cpp.analysis import Site, independent, sites
from mutators.cpp.dependence import jump_out
from mutators.cpp.effects import effects_of
from mutators.cpp.loops import Loop, canonical, is_innermost
from mutators.cpp.moves import Found, Move, fresh_name
from mutators.cpp.nests import body_statements
from mutators.cpp.reductions import identity, reduction_of
from mutators.cpp.scope import Declaration, declaration_of, declarations_in, mentions
from mutators.cpp.tree import Edit, Node, bracketed, indent_of, inside, replace_within, text, walk
from mutators.source import KernelSource


def find_split(kernel: KernelSource) -> Found:
    """One accumulator into ACC independent ones, so that additions overlap; their order changes (reassociation)."""
    moves, refusals = [], []
    for site in sites(kernel):
        found = independent(site)
        if not is_innermost(site.loop) or not found.reductions:
            continue
        reason = "a pragma stands before the loop" if site.pragmas else found.obstacle
        start = declaration_of(site.loop.lower) if site.loop.lower.type == "identifier" else None
        if reason is None and start is not None and start.place in site.facts.assigned:
            reason = "it runs over the rest that another loop left"
        if reason is None and (site.loop.step is not None or site.loop.is_inclusive):
            reason = "only loops of the form i < n with ++i are split"
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        moves.append(_split_move(kernel, site))
    return Found(tuple(moves), tuple(refusals))


def _split_move(kernel: KernelSource, site: Site) -> Move:
    loop, found = site.loop, independent(site)
    count, block, lane = (fresh_name(kernel, stem) for stem in ("ACC", f"{loop.variable.name}_base", "lane"))
    kind, name, margin = loop.variable.type, loop.variable.name, indent_of(loop.node)
    parts = {acc: fresh_name(kernel, f"{acc}_parts") for acc, _ in found.reductions}
    types = {acc: _declared_type(loop, place) for (acc, _), place in zip(found.reductions, found.places, strict=True)}
    changes = {
        (node.start_byte, node.end_byte): f"{parts[acc]}[{lane}]"
        for (acc, _), place in zip(found.reductions, found.places, strict=True)
        for node in mentions(loop.body, place)
    }
    lanes = f"for (int {lane} = 0; {lane} < {count}; ++{lane})"
    lines = ["{"]
    for acc, operator in found.reductions:
        lines.append(f"    {types[acc]} {parts[acc]}[{count}];")
        lines.append(f"    {lanes} {parts[acc]}[{lane}] = {identity(operator, types[acc])};")
    lines += [
        f"    {kind} {block} = {text(loop.lower)};",
        f"    for (; {block} + {count} <= {bracketed(loop.upper)}; {block} += {count}) {lanes} {{",
        f"        const {kind} {name} = {block} + {lane};",
        f"        {replace_within(loop.body, changes)}",
        "    }",
        f"    for ({kind} {name} = {block}; {name} < {bracketed(loop.upper)}; ++{name}) {text(loop.body)}",
    ]
    lines += [f"    {lanes} {_joined(acc, operator, f'{parts[acc]}[{lane}]')}" for acc, operator in found.reductions]
    text_new = f"\n{margin}".join([*lines, "}"])
    return Move(
        kind="split_reduction",
        site=site.name,
        why=f"keep a tunable number of partial results in {site.name}: one addition need not wait for the last",
        edits=(Edit(loop.node.start_byte, loop.node.end_byte, text_new),),
        tunables=((count, "8", "2 4 8 16 32 64"),),
        includes=("limits",),
        label="reassociation",
    )


def _declared_type(loop: Loop, place: int) -> str:
    """The type of the accumulator with this identity."""
    for node in walk(loop.body):
        if node.type == "identifier":
            declaration = declaration_of(node)
            if declaration is not None and declaration.place == place:
                return declaration.type
    raise AssertionError("a reduction's accumulator is mentioned in its loop")


def _joined(acc: str, operator: str, part: str) -> str:
    if operator in "+*":
        return f"{acc} {operator}= {part};"
    comparison = ">" if operator == "max" else "<"
    return f"{acc} = {part} {comparison} {acc} ? {part} : {acc};"


def find_blocked(kernel: KernelSource) -> Found:
    """Sums over an inner loop, for a block of outer iterations at once: the outer loop becomes the innermost.

    `for j { acc = 0; for k acc += f(j, k); use(acc); }` becomes, for each block of j: all acc set, then
    `for k for j acc[j] += f(j, k)`, then all used. Each sum keeps its own order, so results stay the same to the bit.
    """
    moves, refusals = [], []
    for site in sites(kernel):
        shape = _blockable(site)
        if shape is None:
            continue
        if isinstance(shape, str):
            refusals.append((site.name, shape))
            continue
        moves.append(_blocked_move(kernel, site, *shape))
    return Found(tuple(moves), tuple(refusals))


def _blockable(site: Site) -> tuple[list[Node], Node, list[Node], list[Declaration]] | str | None:
    """(statements before, the reducing nest, statements after, accumulators), or why not, or None: no such shape."""
    loop = site.loop
    statements = body_statements(loop)
    nests = [statement for statement in statements if statement.type == "for_statement"]
    if len(nests) != 1 or any(node.type == "preproc_call" for node in walk(loop.body)):
        return None
    before = statements[: statements.index(nests[0])]
    after = statements[statements.index(nests[0]) + 1 :]
    declared = [name for statement in before if statement.type == "declaration" for name in declarations_in(statement)]
    accumulators = [name for name in declared if reduction_of(name, nests[0]) is not None]
    if not accumulators:
        return None
    if site.pragmas or loop.step is not None or loop.is_inclusive:
        return "only loops of the form i < n with ++i and without pragmas are blocked"
    found = independent(site)
    if found.obstacle is not None or found.reductions:
        return found.obstacle or "the loop itself is a reduction"
    return _shape_obstacle(site, before, nests[0], after, accumulators) or (before, nests[0], after, accumulators)


def _shape_obstacle(
    site: Site, before: list[Node], nest: Node, after: list[Node], accumulators: list[Declaration]
) -> str | None:
    loop, own = site.loop, {name.place for name in accumulators}
    if any(statement.type != "declaration" for statement in before):
        return "other statements than declarations stand before the inner loop"
    moved = {loop.variable.place}
    written = {access.base.place for access in effects_of(site.facts, loop.body).accesses if access.is_write}
    for statement in before:
        names = {name.place for name in declarations_in(statement)}
        if names & own and names - own:
            return "an accumulator is declared together with another variable"
        if any(access.base.place in written for access in effects_of(site.facts, statement).accesses):
            return "a declaration before the inner loop reads what the loop writes"
        for name in declarations_in(statement):
            if name.place not in own and (name.place in site.facts.assigned or name.kind not in ("value", "pointer")):
                return f"{name.name} changes in the loop"
            if (name.kind != "value" and name.place in own) or name.value is None:
                return f"{name.name} has no first value"
            moved.add(name.place)
    current: Node = nest
    while True:
        inner = canonical(current)
        if inner is None or jump_out(inner) is not None:
            return "the inner loop is not of the simple form"
        parts = [part for part in (inner.lower, inner.upper, inner.step) if part is not None]
        if any(mentions(part, place) for part in parts for place in moved):
            return "the inner loop's bounds change with the outer one"
        deeper = [statement for statement in body_statements(inner) if statement.type == "for_statement"]
        if not deeper:
            return None
        others = [statement for statement in body_statements(inner) if statement.type != "for_statement"]
        if len(deeper) > 1 or any(mentions(other, place) for other in others for place in moved):
            return "statements between the inner loops change with the outer one"
        current = deeper[0]


def _blocked_move(
    kernel: KernelSource, site: Site, before: list[Node], nest: Node, after: list[Node], accumulators: list[Declaration]
) -> Move:
    loop, margin = site.loop, indent_of(site.loop.node)
    kind, name = loop.variable.type, loop.variable.name
    size, block, width, lane = (
        fresh_name(kernel, stem) for stem in ("BLOCK", f"{name}_first", f"{name}_width", f"{name}_lane")
    )
    arrays = {acc.place: fresh_name(kernel, f"{acc.name}_block") for acc in accumulators}
    others = [text(item) for item in before if not {name.place for name in declarations_in(item)} & set(arrays)]
    mixed = [item for item in before if {name.place for name in declarations_in(item)} & set(arrays)]
    head = f"for ({kind} {lane} = 0; {lane} < {width}; ++{lane})"
    setup = " ".join([f"const {kind} {name} = {block} + {lane};", *others])
    inits = [one for item in mixed for one in declarations_in(item) if one.place in arrays]
    firsts = [f"{arrays[one.place]}[{lane}] = {text(one.value)};" for one in inits]
    innermost = _innermost_body(nest)
    moved = f"{head} {{ {setup}\n{margin}            {_indexed(innermost, arrays, lane)}\n{margin}        }}"
    swapped = replace_within(nest, {(innermost.start_byte, innermost.end_byte): moved})
    rest = "\n".join(f"{margin}            {_indexed(item, arrays, lane)}" for item in after)
    lines = [
        f"for ({kind} {block} = {text(loop.lower)}; {block} < {bracketed(loop.upper)}; {block} += {size}) {{",
        f"    const {kind} {width} = std::min<{kind}>({size}, {bracketed(loop.upper)} - {block});",
        *(f"    {one.type} {arrays[one.place]}[{size}];" for one in accumulators),
        f"    {head} {{ {setup} {' '.join(firsts)} }}",
        f"    {swapped}",
        f"    {head} {{ {setup}\n{rest}\n{margin}    }}",
        "}",
    ]
    return Move(
        kind="block_accumulators",
        site=site.name,
        why=f"build the results of {site.name} up together, a tunable block at a time: its iterations, innermost now, "
        "become vector lanes and what they share is loaded once",
        edits=(Edit(loop.node.start_byte, loop.node.end_byte, f"\n{margin}".join(lines)),),
        tunables=((size, "64", "16 32 64 128 256 512"),),
        includes=("algorithm",),
    )


def _innermost_body(nest: Node) -> Node:
    inner = canonical(nest)
    assert inner is not None
    deeper = [statement for statement in body_statements(inner) if statement.type == "for_statement"]
    return _innermost_body(deeper[0]) if deeper else inner.body


def _indexed(node: Node, arrays: dict[int, str], lane: str) -> str:
    changes = {
        (mention.start_byte, mention.end_byte): f"{array}[{lane}]"
        for place, array in arrays.items()
        for mention in mentions(node, place)
        if inside(mention, node)
    }
    return replace_within(node, changes)

"""Moves that tell the compiler something: OpenMP threads and lanes, unrolling, no dependences, no aliases."""

from __future__ import annotations

from mutators.cpp.aliases import aliased_parameters
from mutators.cpp.analysis import Site, independent, is_helper, overlaps_omp, sites
from mutators.cpp.dependence import Independence, independence
from mutators.cpp.effects import effects_of
from mutators.cpp.loops import Facts, Loop, canonical, facts_of, is_innermost, only_statement, pragmas_before
from mutators.cpp.moves import Found, Move, fresh_name
from mutators.cpp.scope import declarations_in, mentions
from mutators.cpp.tree import (
    Edit,
    Node,
    function_name,
    functions,
    indent_of,
    parameters,
    parse,
    starts_line,
    text,
    walk,
)
from mutators.source import KernelSource

CHUNKS = "1 2 4 8 16 32"


def find_parallel(kernel: KernelSource, schedule: str = "static") -> Found:
    """`#pragma omp parallel for` on every outermost loop with independent iterations."""
    moves, refusals, covered = [], [], []
    for site in sites(kernel):
        if site.is_parallel or any(loop.node in covered for loop in site.enclosing):
            continue
        reason = _parallel_obstacle(site)
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        covered.append(site.loop.node)
        moves.append(_parallel_move(kernel, site, schedule))
    return Found(tuple(moves), tuple(refusals))


def find_parallel_dynamic(kernel: KernelSource) -> Found:
    """The same with `schedule(dynamic, CHUNK)`, CHUNK declared as a tunable."""
    return find_parallel(kernel, "dynamic")


def _lanes_pragma(site: Site) -> Node | None:
    """The `omp simd` line of a loop that may become `omp parallel for simd`."""
    pragmas = pragmas_before(site.loop.node)
    return pragmas[0] if len(pragmas) == 1 and "omp simd" in text(pragmas[0]) else None


def _parallel_obstacle(site: Site) -> str | None:
    if is_helper(site):
        return "the function is called by others of the file: threads belong around those calls"
    if _lanes_pragma(site) is not None and not site.enclosing:
        return independent(site).obstacle
    if overlaps_omp(site) or any("GCC" in pragma for pragma in site.pragmas):
        return "a pragma already stands before the loop"
    if any("omp parallel" in text(node) for node in walk(site.loop.body) if node.type == "preproc_call"):
        return "a loop inside is already parallel"
    if any(any("omp" in text(pragma) for pragma in pragmas_before(loop.node)) for loop in site.enclosing):
        return "it stands in a loop with an OpenMP pragma"
    return independent(site).obstacle


def _parallel_move(kernel: KernelSource, site: Site, schedule: str) -> Move:
    clauses = f"schedule({schedule})"
    tunables: tuple[tuple[str, str, str], ...] = ()
    if schedule == "dynamic":
        name = fresh_name(kernel, "CHUNK")
        clauses = f"schedule(dynamic, {name})"
        tunables = ((name, "4", CHUNKS),)
    pragma = f"#pragma omp parallel for {clauses}{_reduction_clauses(independent(site))}"
    edit, lanes = _line_before(site.loop.node, pragma), _lanes_pragma(site)
    if lanes is not None:
        line = pragma.replace("parallel for", "parallel for simd")
        edit = Edit(lanes.start_byte, lanes.start_byte + len(text(lanes).rstrip().encode()), line)
    balance = "handed out in chunks as threads come free" if schedule == "dynamic" else "in equal shares"
    return Move(
        kind="omp_parallel" if schedule == "static" else "omp_parallel_dynamic",
        site=site.name,
        why=f"run the iterations of {site.name} on all cores, {balance}: they write disjoint elements",
        edits=(edit,),
        add_flags=("-fopenmp",),
        tunables=tunables,
        label="reassociation" if independent(site).reductions else "",
    )


def find_collapse(kernel: KernelSource) -> Found:
    """`collapse(2)` for two perfectly nested loops, both independent: more pieces of work than the outer has."""
    moves, refusals, covered = [], [], []
    for site in sites(kernel):
        inner = _perfect_inner(site)
        if inner is None or site.is_parallel or any(loop.node in covered for loop in site.enclosing):
            continue
        reason = _parallel_obstacle(site) or _inner_obstacle(site, inner)
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        covered.append(site.loop.node)
        pragma = f"#pragma omp parallel for collapse(2) schedule(static){_reduction_clauses(independent(site))}"
        why = f"share the pairs of iterations of {site.name} and {inner.variable.name} among all cores"
        label = "reassociation" if independent(site).reductions else ""
        edit = _line_before(site.loop.node, pragma)
        moves.append(Move("omp_collapse", site.name, why, (edit,), ("-fopenmp",), label=label))
    return Found(tuple(moves), tuple(refusals))


def _perfect_inner(site: Site) -> Loop | None:
    statement = only_statement(site.loop.body)
    if statement is None or statement.type != "for_statement":
        return None
    return canonical(statement)


def _inner_obstacle(site: Site, inner: Loop) -> str | None:
    for expression in (inner.lower, inner.upper, inner.step):
        if expression is not None and mentions(expression, site.loop.variable.place):
            return "the inner loop's bounds change with the outer one"
    return independence(site.facts, inner).obstacle


def find_simd(kernel: KernelSource) -> Found:
    """`#pragma omp simd` on every innermost loop with independent iterations."""
    moves, refusals = [], []
    for site in sites(kernel):
        if not is_innermost(site.loop):
            continue
        threads = _threads_pragma(site)
        reason = "a pragma already stands before the loop" if site.pragmas and threads is None else None
        reason = reason or independent(site).obstacle
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        pragma = f"#pragma omp simd{_reduction_clauses(independent(site))}"
        why = f"compute several iterations of {site.name} in one vector instruction"
        label = "reassociation" if independent(site).reductions else ""
        flags = () if "-fopenmp" in kernel.flags else ("-fopenmp-simd",)
        edit = _line_before(site.loop.node, pragma)
        if threads is not None:
            place = threads.start_byte + text(threads).index("parallel for") + len("parallel for")
            edit = Edit(place, place, " simd")
        moves.append(Move("omp_simd", site.name, why, (edit,), flags, label=label))
    return Found(tuple(moves), tuple(refusals))


def _threads_pragma(site: Site) -> Node | None:
    """The `omp parallel for` line of an innermost loop that may become `omp parallel for simd`."""
    pragmas = pragmas_before(site.loop.node)
    line = text(pragmas[0]) if len(pragmas) == 1 else ""
    return pragmas[0] if "omp parallel for" in line and "simd" not in line and "collapse" not in line else None


def find_ivdep(kernel: KernelSource) -> Found:
    """`#pragma GCC ivdep` on innermost loops without reductions: the same promise without a new order of sums."""
    moves, refusals = [], []
    for site in sites(kernel):
        if not is_innermost(site.loop):
            continue
        found = independent(site)
        reason = "a pragma already stands before the loop" if site.pragmas else found.obstacle
        if reason is None and found.reductions:
            reason = "the loop is a reduction: ivdep does not let the compiler reorder it"
        if reason is not None:
            refusals.append((site.name, reason))
            continue
        why = f"promise the compiler that iterations of {site.name} do not depend on each other"
        moves.append(Move("ivdep", site.name, why, (_line_before(site.loop.node, "#pragma GCC ivdep"),)))
    return Found(tuple(moves), tuple(refusals))


def find_unroll(kernel: KernelSource) -> Found:
    """`#pragma GCC unroll N` on innermost loops, N declared as a tunable."""
    moves, refusals = [], []
    for site in sites(kernel):
        if not is_innermost(site.loop):
            continue
        if site.pragmas:
            refusals.append((site.name, "a pragma already stands before the loop"))
            continue
        name = fresh_name(kernel, "UNROLL")
        why = f"unroll {site.name} by a tunable factor: fewer branches, more independent work in flight"
        edit = _line_before(site.loop.node, f"#pragma GCC unroll {name}")
        moves.append(Move("unroll", site.name, why, (edit,), tunables=((name, "4", "2 4 8 16"),)))
    return Found(tuple(moves), tuple(refusals))


def find_schedule(kernel: KernelSource) -> Found:
    """Another schedule for loops that are already parallel."""
    moves = []
    for site in sites(kernel):
        for pragma in pragmas_before(site.loop.node):
            line = text(pragma).rstrip("\n")
            if "omp parallel for" not in line:
                continue
            kept = " ".join(word for word in line.replace(", ", ",").split() if not word.startswith("schedule("))
            for schedule in ("static", "dynamic", "guided"):
                if f"schedule({schedule}" not in line:
                    edit = Edit(pragma.start_byte, pragma.start_byte + len(line), f"{kept} schedule({schedule})")
                    why = f"hand out the iterations of {site.name} by the {schedule} schedule"
                    moves.append(Move("omp_schedule", f"{site.name}:{schedule}", why, (edit,)))
    return Found(tuple(moves))


def find_drop_pragma(kernel: KernelSource) -> Found:
    """Taking a pragma away again: an earlier move may have been a mistake here."""
    moves = []
    for site in sites(kernel):
        for pragma in pragmas_before(site.loop.node):
            name = " ".join(text(pragma).split()[1:4])
            edit = Edit(pragma.start_byte, pragma.end_byte, "" if text(pragma).endswith("\n") else "//")
            if edit.text == "" and any(word in name for word in ("omp", "GCC")):
                moves.append(Move("drop_pragma", f"{site.name}:{name}", f"drop `{name}` from {site.name}", (edit,)))
    return Found(tuple(moves))


def find_restrict(kernel: KernelSource) -> Found:
    """`__restrict__` on a function's pointer parameters where no visible call passes one array twice."""
    moves, refusals = [], []
    root = parse(kernel.cpp)
    for function in functions(root):
        name = function_name(function)
        facts = facts_of(function, aliased_parameters(kernel, root, function))
        stars = _unrestricted(function)
        if not stars:
            continue
        reason = _restrict_obstacle(facts)
        if reason is not None:
            refusals.append((name, reason))
            continue
        edits = tuple(Edit(star.end_byte, star.end_byte, " __restrict__ ") for star in stars)
        why = f"tell the compiler that the arrays of {name} do not overlap, so that loads can move past stores"
        moves.append(Move("restrict", name, why, edits))
    return Found(tuple(moves), tuple(refusals))


def _restrict_obstacle(facts: Facts) -> str | None:
    effects = effects_of(facts, facts.function.child_by_field_name("body"))
    if effects.obstacles:
        return effects.obstacles[0]
    written = {access.base.name for access in effects.accesses if access.is_write}
    for pair in facts.aliased:
        if pair & written:
            return f"{' and '.join(sorted(pair))} may be the same array: a call passes one tensor for both"
    return None


def _unrestricted(function: Node) -> list[Node]:
    """The `*` of each pointer parameter that has no __restrict__ yet; none where there is just one pointer."""
    declared = [parameter for parameter in parameters(function) if declarations_in(parameter)]
    pointers = [parameter for parameter in declared if declarations_in(parameter)[0].kind == "pointer"]
    if len(pointers) < 2:
        return []
    bare = [parameter for parameter in pointers if "restrict" not in text(parameter)]
    return [next(node for node in walk(parameter) if node.type == "*") for parameter in bare]


def _reduction_clauses(found: Independence) -> str:
    return "".join(f" reduction({operator}:{name})" for name, operator in found.reductions)


def _line_before(node: Node, line: str) -> Edit:
    """The line put before a statement, on a line of its own."""
    break_before = "" if starts_line(node) else f"\n{indent_of(node)}"
    return Edit(node.start_byte, node.start_byte, f"{break_before}{line}\n{indent_of(node)}")

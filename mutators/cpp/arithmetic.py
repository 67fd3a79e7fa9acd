"""Moves on arithmetic: cheaper forms of the same functions, and functions that vectorise."""

from __future__ import annotations

from mutators.cpp.analysis import Site, sites
from mutators.cpp.moves import FAST_MATH, Found, Move, fresh_name
from mutators.cpp.scope import FLOATS, assigned_places, declaration_of, type_of
from mutators.cpp.tree import (
    Edit,
    Node,
    ancestors,
    arguments,
    called_name,
    function_name,
    functions,
    indent_of,
    parse,
    strip,
    text,
    walk,
)
from mutators.cpp.vector_math import TEXTS
from mutators.source import KernelSource

ONE_ARGUMENT = ("exp", "expm1", "log", "log1p", "tanh", "erf", "sqrt", "fabs", "sin", "cos", "exp2", "log2")
SAFE = ("max", "min", "float", "static_cast", "kb_select")


def find_vector_math(kernel: KernelSource) -> Found:
    """Calls of exp, tanh, erf, ... on floats replaced by the branch-free functions of vector_math.py, per function."""
    if set(kernel.flags) & set(FAST_MATH):
        return Found(
            (), (("math", "fast-math would break the functions' range reduction; libm's are vectorised there"),)
        )
    moves, refusals = [], []
    for function in functions(parse(kernel.cpp)):
        name = function_name(function)
        calls = [call for call in _calls(function) if _base_name(call) in TEXTS and not name.startswith("kb_")]
        floats = [call for call in calls if _is_float_call(call)]
        if calls and not floats:
            refusals.append((name, "its calls of mathematical functions are in double precision"))
        if not floats:
            continue
        used = frozenset(_base_name(call) for call in floats)
        edits = tuple(_renamed(call, f"kb_{_base_name(call)}") for call in floats) + _selects(floats)
        why = f"compute {', '.join(sorted(used))} in {name} with branch-free polynomials, which vectorise"
        flags = ("-fno-math-errno", "-fno-trapping-math")
        moves.append(Move("vector_math", name, why, edits, flags, vector_math=used, label="rounding"))
    return Found(tuple(moves), tuple(refusals))


def _selects(calls: list[Node]) -> tuple[Edit, ...]:
    """`c ? a : f(b)` around the calls as `kb_select(c, a, f(b))`: a branch around them would stop vectorisation.

    Both arms are then computed, so each must be a float without effects that reads no memory but what c reads too.
    """
    choices = {
        scope.start_byte: scope for call in calls for scope in ancestors(call) if scope.type == "conditional_expression"
    }
    edits: list[Edit] = []
    for choice in choices.values():
        condition, *arms = (choice.child_by_field_name(part) for part in ("condition", "consequence", "alternative"))
        read = {text(node) for node in walk(condition) if node.type == "subscript_expression"}
        kinds = ("pointer_expression", "update_expression", "assignment_expression", "field_expression")
        parts = [node for arm in arms for node in walk(arm)]
        safe = all(node.type not in kinds for node in parts)
        safe &= all(text(node) in read for node in parts if node.type == "subscript_expression")
        safe &= all(_base_name(node) or called_name(node) in SAFE for node in parts if node.type == "call_expression")
        if not safe or [type_of(arm) for arm in arms] != ["float", "float"]:
            continue
        marks = [next(child for child in choice.children if child.type == mark) for mark in "?:"]
        edits += [Edit(mark.prev_sibling.end_byte, mark.end_byte, ",") for mark in marks]
        edits += [Edit(choice.start_byte, choice.start_byte, "kb_select("), Edit(choice.end_byte, choice.end_byte, ")")]
    return tuple(edits)


def _calls(function: Node) -> list[Node]:
    own = {function_name(other) for other in functions(list(ancestors(function))[-1])}
    calls = [node for node in walk(function) if node.type == "call_expression" and called_name(node) not in own]
    return [call for call in calls if len(arguments(call)) == 1]


def _base_name(call: Node) -> str:
    """`exp` for exp, std::exp and expf; "" for what is none of libm's."""
    name = called_name(call)
    if name in ONE_ARGUMENT:
        return name
    return name[:-1] if name.endswith("f") and name[:-1] in ONE_ARGUMENT else ""


def _is_float_call(call: Node) -> bool:
    name = called_name(call)
    return (name.endswith("f") and name not in ("erf",)) or type_of(arguments(call)[0]) == "float"


def _renamed(call: Node, name: str) -> Edit:
    function = call.child_by_field_name("function")
    return Edit(function.start_byte, function.end_byte, name)


def find_float_functions(kernel: KernelSource) -> Found:
    """`exp(x)` of a float computes in double precision in C's form: `std::exp(x)` does not."""
    moves = []
    for function in functions(parse(kernel.cpp)):
        calls = [call for call in _calls(function) if called_name(call) in ONE_ARGUMENT]
        plain = [call for call in calls if "::" not in text(call.child_by_field_name("function"))]
        edits = tuple(
            _renamed(call, f"std::{called_name(call)}") for call in plain if type_of(arguments(call)[0]) == "float"
        )
        if edits:
            why = f"call the float forms of libm's functions in {function_name(function)}, not the double ones"
            move = Move("float_functions", function_name(function), why, edits, includes=("cmath",), label="rounding")
            moves.append(move)
    return Found(tuple(moves))


def find_float_literals(kernel: KernelSource) -> Found:
    """`0.5 * x` with a float x is computed in double: `0.5f * x` is not. Only in functions without any double."""
    moves, refusals = [], []
    for function in functions(parse(kernel.cpp)):
        name = function_name(function)
        literals = [node for node in walk(function) if node.type == "number_literal" and type_of(node) == "double"]
        if not literals:
            continue
        if "double" in text(function):
            refusals.append((name, "the function computes in double on purpose"))
            continue
        edits = tuple(Edit(node.end_byte, node.end_byte, "f") for node in literals if text(node)[-1] not in "lL")
        why = f"write the constants of {name} as floats, so that its arithmetic stays in float"
        if edits:
            moves.append(Move("float_literals", name, why, edits, label="rounding"))
    return Found(tuple(moves), tuple(refusals))


def find_power(kernel: KernelSource) -> Found:
    """`pow(x, 2)` as x * x, `pow(x, 3)` as x * x * x, for a plain variable x."""
    moves = []
    for function in functions(parse(kernel.cpp)):
        edits = []
        for node in walk(function):
            product = _as_product(node)
            if product is not None:
                edits.append(Edit(node.start_byte, node.end_byte, product))
        if edits:
            why = f"multiply in {function_name(function)} instead of calling pow for a small whole exponent"
            moves.append(Move("power", function_name(function), why, tuple(edits), label="rounding"))
    return Found(tuple(moves))


def _as_product(node: Node) -> str | None:
    if node.type != "call_expression" or called_name(node) not in ("pow", "powf") or len(arguments(node)) != 2:
        return None
    base, exponent = arguments(node)
    plain = strip(base)
    simple = plain.type == "identifier" or (plain.type == "subscript_expression" and _is_plain(plain))
    count = text(strip(exponent)).rstrip("fF").rstrip("0").rstrip(".")
    if not simple or count not in ("2", "3") or type_of(base) not in FLOATS:
        return None
    return "(" + " * ".join([text(base)] * int(count)) + ")"


def _is_plain(node: Node) -> bool:
    kinds = ("call_expression", "update_expression", "assignment_expression")
    return not any(part.type in kinds for part in walk(node))


def find_reciprocal(kernel: KernelSource) -> Found:
    """Division by what a loop does not change, as multiplication by its reciprocal, computed once (rounding)."""
    moves, refusals = [], []
    for site in sites(kernel):
        divisions = _invariant_divisions(site)
        if not divisions:
            continue
        if site.pragmas or site.loop.node.parent.type != "compound_statement":
            refusals.append((site.name, "no declaration can stand directly before the loop"))
            continue
        moves.append(_reciprocal_move(kernel, site, divisions))
    return Found(tuple(moves), tuple(refusals))


def _invariant_divisions(site: Site) -> dict[str, list[Node]]:
    """Divisions by a scalar declared outside the loop and not changed in it, by the scalar's name."""
    changed = assigned_places(site.loop.node)
    found: dict[str, list[Node]] = {}
    for node in walk(site.loop.body):
        if node.type != "binary_expression" or text(node.child_by_field_name("operator")) != "/":
            continue
        divisor = node.child_by_field_name("right")
        declaration = declaration_of(divisor) if divisor.type == "identifier" else None
        if declaration is None or declaration.place in changed or declaration.type not in FLOATS:
            continue
        outside = declaration.place < site.loop.node.start_byte and declaration.kind == "value"
        numerator = type_of(node.child_by_field_name("left"))
        if outside and numerator in ("float", declaration.type) and not _in_inner_loop(node, site):
            found.setdefault(text(divisor), []).append(node)
    return found


def _in_inner_loop(node: Node, site: Site) -> bool:
    """Whether a loop nearer to the division would serve better."""
    around = next(scope for scope in ancestors(node) if scope.type in ("for_statement", "while_statement"))
    return around != site.loop.node


def _reciprocal_move(kernel: KernelSource, site: Site, divisions: dict[str, list[Node]]) -> Move:
    margin, edits = indent_of(site.loop.node), []
    for divisor, nodes in divisions.items():
        inverse = fresh_name(kernel, f"{divisor}_inverse")
        declaration = declaration_of(nodes[0].child_by_field_name("right"))
        assert declaration is not None
        one = "1.0f" if declaration.type == "float" else "1.0"
        line = f"const {declaration.type} {inverse} = {one} / {divisor};\n{margin}"
        edits.append(Edit(site.loop.node.start_byte, site.loop.node.start_byte, line))
        for node in nodes:
            operator, right = node.child_by_field_name("operator"), node.child_by_field_name("right")
            edits.append(Edit(operator.start_byte, right.end_byte, f"* {inverse}"))
    why = f"divide once before {site.name} and multiply inside: a division costs several multiplications"
    return Move("reciprocal", site.name, why, tuple(edits), label="rounding")

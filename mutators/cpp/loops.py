"""Canonical loops, and what is known of the integers in a function."""

from __future__ import annotations

from dataclasses import dataclass, replace

from mutators.cpp.polynomial import ONE, Poly, constant, is_nonnegative, variable
from mutators.cpp.scope import INTEGERS, Declaration, assigned_places, declaration_of, declarations_in
from mutators.cpp.tree import Node, arguments, called_name, named, strip, text, walk


@dataclass(frozen=True, slots=True)
class Loop:
    """`for (T i = lower; i < upper; i += step) body`, with i, upper and step untouched by the body."""

    node: Node
    variable: Declaration
    lower: Node
    upper: Node
    is_inclusive: bool
    """Whether the condition is `<=`."""
    step: Node | None
    """None stands for 1."""
    body: Node

    @property
    def atom(self) -> str:
        return atom_of(self.variable)

    @property
    def header(self) -> str:
        """`(...)` of the for statement."""
        start, end = self.node.start_byte, self.body.start_byte
        return self.node.text[: end - start].decode().rstrip()[3:].lstrip()


@dataclass(frozen=True, slots=True)
class Facts:
    """What the analysis of one function needs everywhere."""

    function: Node
    loops: dict[int, Loop]
    """Canonical loops by their variable's identity."""
    assigned: frozenset[int]
    """Variables assigned somewhere after their declaration."""
    positive: frozenset[str]
    """Atoms taken as >= 1: positive constants, and integers that bound a loop (where one is 0, arrays are empty)."""
    natural: frozenset[str]
    """Atoms taken as >= 0: integer parameters that stand in a loop's bound (they are sizes), and loop variables that
    start at such a number."""
    quotients: tuple[tuple[str, str, Poly], ...]
    """(a, q, d) for each `const int q = a / d`: a = d*q + rest with rest >= 0."""
    aliased: frozenset[frozenset[str]] = frozenset()
    """Pairs of pointer parameters that a visible call gives the same array."""


def atom_of(declaration: Declaration) -> str:
    """The atom that stands for a variable."""
    return f"{declaration.name}@{declaration.place}"


def atom_places(atom: str) -> set[int] | None:
    """Identities of the variables that an atom's value rests on; None where it reads memory or calls something."""
    if atom.endswith("|memory"):
        return None
    places = atom.rsplit("@", 1)[-1]
    return {int(place) for place in places.split(",") if place}


def canonical(node: Node) -> Loop | None:
    """The loop that a for_statement is, or None where it is not canonical."""
    init, update = node.child_by_field_name("initializer"), node.child_by_field_name("update")
    condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
    if init is None or init.type != "declaration" or condition is None or update is None:
        return None
    declared = declarations_in(init)
    if len(declared) != 1 or declared[0].value is None or declared[0].type not in INTEGERS:
        return None
    index = declared[0]
    if condition.type != "binary_expression" or text(condition.child_by_field_name("left")) != index.name:
        return None
    operator = text(condition.child_by_field_name("operator"))
    step, steps = _step(update, index.name)
    upper = condition.child_by_field_name("right")
    if operator not in ("<", "<=") or not steps or not _is_invariant(upper, body, index):
        return None
    if step is not None and not _is_invariant(step, body, index):
        return None
    return Loop(node, index, index.value, upper, operator == "<=", step, body)


def _step(update: Node, name: str) -> tuple[Node | None, bool]:
    """(step, whether the update is canonical)."""
    if update.type == "update_expression":
        return None, text(update.child_by_field_name("argument")) == name and "++" in text(update)
    if update.type == "assignment_expression" and text(update.child_by_field_name("operator")) == "+=":
        return update.child_by_field_name("right"), text(update.child_by_field_name("left")) == name
    return None, False


def _is_invariant(expression: Node, body: Node, index: Declaration) -> bool:
    """Whether the body leaves the expression's variables, and the loop variable, alone."""
    changed = assigned_places(body)
    if index.place in changed:
        return False
    for node in walk(expression):
        if node.type in ("subscript_expression", "pointer_expression", "assignment_expression", "update_expression"):
            return False
        if node.type == "call_expression" and called_name(node) not in (
            "min", "max", "size", "static_cast", "int64_t", "int", "size_t",
        ):  # fmt: skip
            return False
        declaration = declaration_of(node) if node.type == "identifier" else None
        if declaration is not None and (declaration.place in changed or declaration.place == index.place):
            return False
    return True


def facts_of(function: Node, aliased: frozenset[frozenset[str]] = frozenset()) -> Facts:
    """The facts of one function."""
    found = [canonical(node) for node in walk(function) if node.type == "for_statement"]
    loops = {loop.variable.place: loop for loop in found if loop is not None}
    assigned = frozenset(assigned_places(function))
    bare = Facts(function, loops, assigned, frozenset(), frozenset(), (), aliased)
    positive = _positive(bare)
    sizes = _sizes(bare)
    with_signs = replace(bare, positive=frozenset(positive), natural=frozenset(sizes))
    natural = _natural_variables(with_signs)
    return replace(with_signs, natural=frozenset(sizes | natural), quotients=_quotients(with_signs))


def _positive(bare: Facts) -> set[str]:
    loops = bare.loops
    positive = set()
    for loop in loops.values():
        bounds = [] if loop.is_inclusive else uppers(bare, loop.upper)
        for bound in (*bounds, *([value(bare, loop.step)] if loop.step is not None else [])):
            if len(bound.terms) == 1 and bound.terms[0][1] > 0:
                positive |= {atom for atom in bound.atoms if not (atom_places(atom) or set()) & set(loops)}
    for node in walk(bare.function):
        declaration = declaration_of(node) if node.type == "identifier" else None
        if declaration is not None and declaration.is_const and declaration.value is not None:
            literal = strip(declaration.value)
            if literal.type == "number_literal" and text(literal).isdigit() and int(text(literal)) > 0:
                positive.add(atom_of(declaration))
    return positive


def _sizes(bare: Facts) -> set[str]:
    """Integer parameters in the bounds of loops, or in the constants from which bounds are made."""
    found: set[str] = set()
    waiting = [loop.upper for loop in bare.loops.values()]
    seen: set[int] = set()
    while waiting:
        for node in walk(waiting.pop()):
            declaration = declaration_of(node) if node.type == "identifier" else None
            if declaration is None or declaration.place in seen or declaration.place in bare.assigned:
                continue
            seen.add(declaration.place)
            if declaration.is_parameter and declaration.kind == "value":
                found.add(atom_of(declaration))
            elif declaration.value is not None and declaration.place not in bare.loops:
                waiting.append(declaration.value)
    return found


def _natural_variables(facts: Facts) -> set[str]:
    """Loop variables that start at a number >= 0 (or at such a variable)."""
    found: set[str] = set(facts.natural)
    for loop in sorted(facts.loops.values(), key=lambda loop: loop.node.start_byte):
        if any(is_nonnegative(low, set(facts.positive), found) for low in lowers(facts, loop.lower)):
            found.add(loop.atom)
    return found


def _quotients(facts: Facts) -> tuple[tuple[str, str, Poly], ...]:
    found = []
    for node in walk(facts.function):
        for declaration in declarations_in(node) if node.type == "declaration" else []:
            division = strip(declaration.value) if declaration.value is not None else None
            if division is None or division.type != "binary_expression" or declaration.place in facts.assigned:
                continue
            if text(division.child_by_field_name("operator")) != "/" or declaration.type not in INTEGERS:
                continue
            dividend, divisor = (value(facts, division.child_by_field_name(side)) for side in ("left", "right"))
            single = len(dividend.terms) == 1 and dividend.terms[0][1] == 1 and len(dividend.terms[0][0]) == 1
            if single and is_nonnegative(divisor - ONE, set(facts.positive), set()):
                found.append((dividend.terms[0][0][0], atom_of(declaration), divisor))
    return tuple(found)


def shown_nonnegative(facts: Facts, poly: Poly) -> bool:
    """Whether the polynomial is >= 0 by the signs in the facts and, where needed, by a = d*(a / d) + rest."""
    known = set(facts.natural)
    if is_nonnegative(poly, set(facts.positive), known):
        return True
    for dividend, quotient, divisor in facts.quotients:
        if dividend in poly.atoms and dividend in known | facts.positive:
            rest = f"{quotient}|rest"
            poly = poly.substitute(dividend, divisor * variable(quotient) + variable(rest))
            known |= {quotient, rest}
            if is_nonnegative(poly, set(facts.positive), known):
                return True
    return False


def value(facts: Facts, node: Node) -> Poly:
    """An integer expression as a polynomial; what is not +, - or * becomes an opaque atom."""
    node = strip(node)
    if node.type == "number_literal" and text(node).rstrip("uUlL").isdigit():
        return constant(int(text(node).rstrip("uUlL")))
    if node.type == "identifier":
        return _variable_value(facts, node)
    if node.type == "unary_expression" and text(node).startswith("-"):
        return -value(facts, named(node)[-1])
    if node.type == "binary_expression":
        operator = text(node.child_by_field_name("operator"))
        if operator in "+-*":
            left, right = (value(facts, node.child_by_field_name(side)) for side in ("left", "right"))
            return left + right if operator == "+" else left - right if operator == "-" else left * right
    return variable(_opaque(node))


def _variable_value(facts: Facts, node: Node) -> Poly:
    declaration = declaration_of(node)
    if declaration is None:
        return variable(f"{text(node)}@|memory")  # a macro: what it expands to is not known here
    own = variable(atom_of(declaration))
    if declaration.place in facts.loops or declaration.place in facts.assigned or declaration.is_parameter:
        return own
    if declaration.kind != "value" or declaration.value is None or declaration.type not in INTEGERS:
        return own
    if declaration.statement.parent is not None and declaration.statement.parent.type != "compound_statement":
        return own  # a constant of the file, such as a tunable, stays a symbol
    inner = value(facts, declaration.value)
    return own if any(atom.startswith("?") for atom in inner.atoms) else inner


def _opaque(node: Node) -> str:
    places, reads_memory = set(), False
    for part in walk(node):
        if part.type == "identifier":
            declaration = declaration_of(part)
            if declaration is not None:
                places.add(declaration.place)
        reads_memory |= part.type in ("subscript_expression", "pointer_expression", "field_expression")
        reads_memory |= part.type == "call_expression" and called_name(part) not in ("min", "max", "static_cast")
    mark = "|memory" if reads_memory else ""
    return f"?{text(node)}@{','.join(str(place) for place in sorted(places))}{mark}"


def uppers(facts: Facts, node: Node) -> list[Poly]:
    """Polynomials that are each >= the expression: both sides of a min, else its value."""
    return _alternatives(facts, node, "min")


def lowers(facts: Facts, node: Node) -> list[Poly]:
    """Polynomials that are each <= the expression: both sides of a max, else its value."""
    return _alternatives(facts, node, "max")


def _alternatives(facts: Facts, node: Node, name: str) -> list[Poly]:
    node = strip(node)
    if node.type == "call_expression" and called_name(node) == name:
        return [poly for argument in arguments(node) for poly in _alternatives(facts, argument, name)]
    if node.type == "conditional_expression" and _is_choice(node, name):
        sides = (node.child_by_field_name("consequence"), node.child_by_field_name("alternative"))
        return [poly for side in sides for poly in _alternatives(facts, side, name)]
    if node.type == "identifier":
        declaration = declaration_of(node)
        if declaration is None or declaration.value is None or declaration.kind != "value":
            return [value(facts, node)]
        if declaration.place not in facts.assigned and declaration.place not in facts.loops:
            inner = strip(declaration.value)
            if inner.type in ("call_expression", "conditional_expression"):
                return [value(facts, node), *_alternatives(facts, inner, name)]
    return [value(facts, node)]


def _is_choice(node: Node, name: str) -> bool:
    """Whether `a < b ? a : b` is the min (or max) of its branches."""
    condition = strip(node.child_by_field_name("condition"))
    if condition.type != "binary_expression":
        return False
    operator = text(condition.child_by_field_name("operator"))[0]
    sides = [text(strip(condition.child_by_field_name(side))) for side in ("left", "right")]
    branches = [text(strip(node.child_by_field_name(side))) for side in ("consequence", "alternative")]
    wants_first = (operator == "<") == (name == "min")
    return operator in "<>" and branches == (sides if wants_first else sides[::-1])


def step_of(facts: Facts, loop: Loop) -> Poly:
    """The loop's step as a polynomial."""
    return ONE if loop.step is None else value(facts, loop.step)


def is_innermost(loop: Loop) -> bool:
    """Whether no loop stands in the body."""
    kinds = ("for_statement", "while_statement", "do_statement", "for_range_loop")
    return not any(node.type in kinds for node in walk(loop.body))


def only_statement(body: Node) -> Node | None:
    """The single statement of a loop body, or None."""
    if body.type != "compound_statement":
        return body
    children = named(body)
    return children[0] if len(children) == 1 else None


def pragmas_before(node: Node) -> list[Node]:
    """The `#pragma` lines that stand directly before a statement, nearest first."""
    found, sibling = [], node.prev_sibling
    while sibling is not None and sibling.type in ("preproc_call", "comment"):
        if sibling.type == "preproc_call":
            found.append(sibling)
        sibling = sibling.prev_sibling
    return found

"""Reductions: an outer scalar that a loop only adds to, multiplies, or raises to a maximum or minimum."""

from __future__ import annotations

from mutators.cpp.scope import FLOATS, INTEGERS, Declaration, mentions
from mutators.cpp.tree import Node, ancestors, arguments, called_name, named, strip, text

IDENTITIES = {
    "+": "0",
    "*": "1",
    "max": "-std::numeric_limits<{type}>::infinity()",
    "min": "std::numeric_limits<{type}>::infinity()",
    "integer max": "std::numeric_limits<{type}>::lowest()",
    "integer min": "std::numeric_limits<{type}>::max()",
}
"""What changes no result of an operator, by type of the accumulator."""


def identity(operator: str, type_name: str) -> str:
    """The C++ expression for an operator's neutral element."""
    whole = operator in ("max", "min") and type_name not in FLOATS
    return IDENTITIES[f"integer {operator}" if whole else operator].format(type=type_name)


def reduction_of(accumulator: Declaration, body: Node) -> str | None:
    """The operator (`+`, `*`, `max`, `min`) by which the body uses the scalar, or None where it does anything else."""
    if accumulator.kind != "value" or accumulator.type not in FLOATS | INTEGERS - {"auto"}:
        return None
    operators = {_update(node, accumulator, body) for node in mentions(body, accumulator.place)}
    return operators.pop() if len(operators) == 1 else None


def _update(mention: Node, accumulator: Declaration, body: Node) -> str | None:
    """The operator of the smallest statement around a mention, if that statement is nothing but an update."""
    for statement in ancestors(mention):
        if statement.type == "if_statement":
            return _conditional_update(statement, accumulator)
        if statement.type == "expression_statement":
            operator = _expression_update(strip(named(statement)[0]), accumulator)
            guard = _guard(statement)
            if operator is None and guard is not None:
                return _conditional_update(guard, accumulator)
            return operator
        if statement == body:
            return None
    return None


def _guard(statement: Node) -> Node | None:
    """The if statement whose only consequence this is."""
    parent = statement.parent
    if parent is not None and parent.type == "compound_statement" and len(named(parent)) == 1:
        parent = parent.parent
    return parent if parent is not None and parent.type == "if_statement" else None


def _expression_update(node: Node, accumulator: Declaration) -> str | None:
    if node.type == "update_expression":
        return "+"
    if node.type != "assignment_expression" or not _is(node.child_by_field_name("left"), accumulator):
        return None
    operator, right = text(node.child_by_field_name("operator")), node.child_by_field_name("right")
    if operator != "=":
        table = {"+=": "+", "-=": "+", "*=": "*"}
        return table.get(operator) if not _uses(right, accumulator) else None
    right = strip(right)
    if right.type == "call_expression":
        return _call_update(right, accumulator)
    if right.type == "conditional_expression":
        return _choice_update(right, accumulator)
    return _chain_update(right, accumulator)


def _call_update(call: Node, accumulator: Declaration) -> str | None:
    """`acc = std::max(acc, e)` or `acc = fma(a, b, acc)`."""
    name, given = called_name(call), arguments(call)
    used = [argument for argument in given if _uses(argument, accumulator)]
    if len(used) != 1 or not _is(used[0], accumulator):
        return None
    if name in ("fma", "fmaf"):
        return "+" if used[0] == given[-1] else None
    return {"max": "max", "fmax": "max", "fmaxf": "max", "min": "min", "fmin": "min", "fminf": "min"}.get(name)


def _chain_update(node: Node, accumulator: Declaration) -> str | None:
    """`acc = acc + a - b`, `acc = e + acc`, `acc = acc * e`."""
    if node.type != "binary_expression":
        return None
    left, right = (node.child_by_field_name(side) for side in ("left", "right"))
    operator = text(node.child_by_field_name("operator"))
    kind = {"+": "+", "-": "+", "*": "*"}.get(operator)
    if operator in "+*" and _is(right, accumulator) and not _uses(left, accumulator):
        return kind
    if _uses(right, accumulator):
        return None
    if _is(left, accumulator):
        return kind
    return kind if left.type == "binary_expression" and _chain_update(left, accumulator) == kind else None


def _choice_update(node: Node, accumulator: Declaration) -> str | None:
    """`acc = e > acc ? e : acc` and its three mirror images."""
    condition = strip(node.child_by_field_name("condition"))
    branches = [node.child_by_field_name("consequence"), node.child_by_field_name("alternative")]
    other = [branch for branch in branches if not _is(branch, accumulator)]
    if len(other) != 1:
        return None
    takes_other_when_true = other[0] == branches[0]
    return _comparison(condition, accumulator, other[0], takes_other_when_true)


def _conditional_update(statement: Node, accumulator: Declaration) -> str | None:
    """`if (e > acc) acc = e;`"""
    consequence = statement.child_by_field_name("consequence")
    if statement.child_by_field_name("alternative") is not None:
        return None
    inner = named(consequence) if consequence.type == "compound_statement" else [consequence]
    if len(inner) != 1 or inner[0].type != "expression_statement":
        return None
    assignment = named(inner[0])[0]
    if assignment.type != "assignment_expression" or text(assignment.child_by_field_name("operator")) != "=":
        return None
    if not _is(assignment.child_by_field_name("left"), accumulator):
        return None
    condition = strip(statement.child_by_field_name("condition"))
    return _comparison(condition, accumulator, assignment.child_by_field_name("right"), True)


def _comparison(condition: Node, accumulator: Declaration, other: Node, takes_other: bool) -> str | None:
    """max or min, where `condition` compares the accumulator with `other`."""
    if condition.type != "binary_expression" or _uses(other, accumulator):
        return None
    operator = text(condition.child_by_field_name("operator"))
    left, right = (strip(condition.child_by_field_name(side)) for side in ("left", "right"))
    if operator[0] not in "<>":
        return None
    other_text = text(strip(other))
    if text(left) == other_text and _is(right, accumulator):
        greater = operator[0] == ">"
    elif text(right) == other_text and _is(left, accumulator):
        greater = operator[0] == "<"
    else:
        return None
    return "max" if greater == takes_other else "min"


def _is(node: Node, accumulator: Declaration) -> bool:
    node = strip(node)
    return node.type == "identifier" and text(node) == accumulator.name


def _uses(node: Node, accumulator: Declaration) -> bool:
    return bool(mentions(node, accumulator.place))

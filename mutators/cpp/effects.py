"""What a piece of C++ reads and writes, as far as it can be told; what cannot be told is named as an obstacle."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mutators.cpp.loops import Facts, value
from mutators.cpp.polynomial import Poly
from mutators.cpp.scope import Declaration, declaration_of, declarations_in, declared_inside, written_identifier
from mutators.cpp.tree import (
    Node,
    ancestors,
    arguments,
    called_name,
    function_name,
    functions,
    inside,
    named,
    parameters,
    strip,
    text,
    walk,
)

_MATH = re.findall(
    r"\w+",
    "exp exp2 expm1 log log2 log10 log1p pow sqrt cbrt tanh sinh cosh sin cos tan atan asin acos atan2 erf erfc floor "
    "ceil round trunc rint nearbyint lrint fma fmod hypot max min fmax fmin abs fabs copysign isnan isinf isfinite "
    "signbit lgamma tgamma ldexp",
)
PURE = {*_MATH, *(name + "f" for name in _MATH)} | {
    "static_cast", "reinterpret_cast", "int", "float", "double", "long", "bool", "int64_t", "int32_t", "size_t",
    "uint32_t", "uint64_t", "infinity", "lowest", "epsilon", "quiet_NaN", "numeric_limits", "size", "data", "data_ptr",
    "const_data_ptr", "mutable_data_ptr", "numel", "sizes", "dim", "begin", "end", "__builtin_inff",
    "__builtin_expect", "bit_cast", "assert",
}  # fmt: skip
FORBIDDEN = {
    "lambda_expression": "a lambda",
    "goto_statement": "goto",
    "throw_statement": "throw",
    "try_statement": "try",
    "new_expression": "new",
    "delete_expression": "delete",
    "gnu_asm_expression": "asm",
    "co_await_expression": "co_await",
    "switch_statement": "switch",
    "labeled_statement": "a label",
}


@dataclass(frozen=True, slots=True)
class Access:
    """A read or write of an array element."""

    base: Declaration
    """The array: a pointer parameter, a local array, a tensor."""
    index: Poly | None
    """Elements from the base; None where it cannot be told."""
    is_write: bool
    node: Node


@dataclass(frozen=True, slots=True)
class Effects:
    """All effects of a region."""

    scalar_writes: tuple[tuple[Declaration, Node], ...]
    accesses: tuple[Access, ...]
    obstacles: tuple[str, ...]
    """What the region does that the analysis does not follow; anything may have happened."""


def effects_of(facts: Facts, region: Node) -> Effects:
    """Reads, writes and obstacles of everything in the region."""
    scalars: list[tuple[Declaration, Node]] = []
    accesses: list[Access] = []
    obstacles: list[str] = []
    macros = _macros(list(ancestors(region))[-1])
    for node in walk(region):
        if node.type in FORBIDDEN:
            obstacles.append(f"it contains {FORBIDDEN[node.type]}")
        elif node.type == "identifier" and text(node) in macros:
            obstacles.append(f"it uses the macro {text(node)}")
        elif node.type == "call_expression":
            _add_call(facts, node, accesses, obstacles)
        elif node.type == "declaration":
            obstacles += [f"{name.name} is static" for name in declarations_in(node) if name.is_static]
        target = written_identifier(node)
        if target is not None:
            _add_write(facts, target, node, scalars, accesses, obstacles)
        elif _is_element(node):
            found = resolve(facts, node)
            if isinstance(found, Declaration) or found is None:
                obstacles.append(f"it reads {text(node)}, whose array cannot be told")
            else:
                accesses.append(Access(found[0], found[1], False, node))
    return Effects(tuple(scalars), tuple(accesses), tuple(dict.fromkeys(obstacles)))


def _macros(root: Node) -> set[str]:
    """Names of macros that are not plain numbers."""
    found = set()
    for node in walk(root):
        if node.type in ("preproc_def", "preproc_function_def"):
            body = node.child_by_field_name("value")
            if node.type == "preproc_function_def" or body is None or not _is_number(text(body)):
                found.add(text(node.child_by_field_name("name")))
    return found


def _is_number(literal: str) -> bool:
    return literal.split("//")[0].strip().rstrip("fFuUlL").replace(".", "", 1).isdigit()


def _is_element(node: Node) -> bool:
    if node.type == "subscript_expression":
        return node.parent is None or node.parent.type != "subscript_expression" or _is_index(node)
    return node.type == "pointer_expression" and text(node).startswith("*")


def _is_index(node: Node) -> bool:
    return node.parent.child_by_field_name("argument") != node


def _add_write(
    facts: Facts,
    target: Node,
    node: Node,
    scalars: list[tuple[Declaration, Node]],
    accesses: list[Access],
    obstacles: list[str],
) -> None:
    found = resolve(facts, strip(target) if target.type == "parenthesized_expression" else target)
    if found is None:
        obstacles.append(f"it writes {text(target)}, whose place cannot be told")
    elif isinstance(found, Declaration):
        if found.kind == "pointer":
            obstacles.append(f"it moves the pointer {found.name}")
        scalars.append((found, node))
    else:
        accesses.append(Access(found[0], found[1], True, node))


def _add_call(facts: Facts, call: Node, accesses: list[Access], obstacles: list[str]) -> None:
    name = called_name(call)
    if name in PURE or name.startswith("kb_"):
        return
    callee = next(
        (other for other in functions(list(ancestors(call))[-1]) if function_name(other) == name and name), None
    )
    if callee is None or not is_pure(callee):
        obstacles.append(f"it calls {name or text(call)}, which may have effects")
        return
    for argument in arguments(call):
        found = pointer(facts, argument)
        if found is not None:
            accesses.append(Access(found[0], None, False, argument))


def is_pure(function: Node, depth: int = 0) -> bool:
    """Whether a function of the file only computes from its arguments and what const pointers show it."""
    for parameter in parameters(function):
        for declaration in declarations_in(parameter):
            if declaration.kind != "value" and not declaration.is_const:
                return False
    for node in walk(function.child_by_field_name("body")):
        target = written_identifier(node)
        if node.type in FORBIDDEN or (target is not None and not _is_own(target, function)):
            return False
        if node.type == "declaration" and any(name.is_static for name in declarations_in(node)):
            return False
        if node.type == "call_expression" and not _calls_purely(node, function, depth):
            return False
    return True


def _is_own(target: Node, function: Node) -> bool:
    while target.type in ("subscript_expression", "parenthesized_expression"):
        target = target.child_by_field_name("argument") or named(target)[0]
    declaration = declaration_of(target) if target.type == "identifier" else None
    if declaration is None or not declared_inside(declaration, function):
        return False
    return declaration.kind in ("value", "array")


def _calls_purely(call: Node, function: Node, depth: int) -> bool:
    name = called_name(call)
    if name in PURE or name.startswith("kb_") or (name == "memcpy" and _copies_own(call, function)):
        return True
    root = list(ancestors(function))[-1]
    callees = [other for other in functions(root) if function_name(other) == name and other != function]
    return depth < 4 and bool(callees) and all(is_pure(callee, depth + 1) for callee in callees)


def _copies_own(call: Node, function: Node) -> bool:
    """Whether a memcpy goes to a local variable's own address: a reinterpretation of bits."""
    target = arguments(call)[0]
    if target.type != "pointer_expression" or not text(target).startswith("&"):
        return False
    return _is_own(target.child_by_field_name("argument"), function)


def resolve(facts: Facts, node: Node) -> Declaration | tuple[Declaration, Poly | None] | None:
    """What an lvalue names: a scalar variable, an array's element, or None where it cannot be told."""
    if node.type == "identifier":
        declaration = declaration_of(node)
        if declaration is None:
            return None
        if declaration.kind == "reference":
            return resolve(facts, declaration.value) if declaration.value is not None else (declaration, Poly())
        return declaration
    if node.type == "parenthesized_expression":
        return resolve(facts, named(node)[0])
    if node.type == "subscript_expression":
        return _element(facts, node)
    if node.type == "pointer_expression" and text(node).startswith("*"):
        return pointer(facts, node.child_by_field_name("argument"))
    return None


def _element(facts: Facts, node: Node) -> tuple[Declaration, Poly | None] | None:
    base, index = node.child_by_field_name("argument"), node.child_by_field_name("indices")
    if base.type == "subscript_expression":
        found = _element(facts, base)
        return (found[0], None) if found is not None else None
    found = pointer(facts, base)
    inner = named(index) if index is not None else []
    if found is None or len(inner) != 1:
        return None
    return found[0], None if found[1] is None else found[1] + value(facts, inner[0])


def pointer(facts: Facts, node: Node) -> tuple[Declaration, Poly | None] | None:
    """(array, offset in elements) of a pointer expression; None where it is not one or cannot be told."""
    bare = strip(node)
    if bare.type == "identifier":
        found = _named_pointer(facts, bare)
    elif bare.type == "binary_expression":
        found = _moved_pointer(facts, bare)
    elif bare.type == "pointer_expression" and text(bare).startswith("&"):
        inner = resolve(facts, bare.child_by_field_name("argument"))
        found = None if isinstance(inner, Declaration) else inner
    elif bare.type == "call_expression":
        found = _held_pointer(facts, bare)
    else:
        found = None
    was_cast = any(part.type in ("cast_expression", "call_expression") and inside(bare, part) and part != bare
                   for part in walk(node))  # fmt: skip
    if found is not None and was_cast and bare.type != "call_expression":
        return found[0], None
    return found


def _named_pointer(facts: Facts, node: Node) -> tuple[Declaration, Poly | None] | None:
    declaration = declaration_of(node)
    if declaration is None:
        return None
    if declaration.is_object:
        return declaration, Poly()
    if declaration.kind == "reference":
        return (declaration, Poly()) if declaration.is_parameter else None
    points = declaration.kind == "pointer" or (declaration.type == "auto" and declaration.value is not None)
    if not points or declaration.place in facts.assigned:
        return None
    if declaration.is_parameter:
        return declaration, Poly()
    if declaration.value is None:
        return None
    return pointer(facts, declaration.value)


def _moved_pointer(facts: Facts, node: Node) -> tuple[Declaration, Poly | None] | None:
    operator = text(node.child_by_field_name("operator"))
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    found = pointer(facts, left)
    if found is None and operator == "+":
        found, right = pointer(facts, right), left
    if found is None or operator not in "+-" or found[1] is None:
        return found if operator in "+-" else None
    offset = value(facts, right)
    return found[0], found[1] + (offset if operator == "+" else -offset)


def _held_pointer(facts: Facts, call: Node) -> tuple[Declaration, Poly | None] | None:
    """The array behind `t.data_ptr<float>()` or `v.data()`: the variable t or v."""
    function = call.child_by_field_name("function")
    if function.type != "field_expression" or called_name(call) not in ("data", "data_ptr", "mutable_data_ptr"):
        return None
    owner = function.child_by_field_name("argument")
    declaration = declaration_of(owner) if owner.type == "identifier" else None
    return (declaration, Poly()) if declaration is not None else None

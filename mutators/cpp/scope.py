"""What a name means at a place: its declaration, found by walking outwards as a compiler does."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from mutators.cpp.tree import Node, ancestors, inside, named, text, walk

INTEGERS = {
    "int", "long", "int64_t", "int32_t", "int16_t", "int8_t", "uint8_t", "uint32_t", "uint64_t", "size_t",
    "std::size_t", "std::int64_t", "std::int32_t", "ptrdiff_t", "long long", "unsigned", "unsigned int", "auto",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Declaration:
    """One declared name."""

    name: str
    place: int
    """Byte of the name in its declarator: the variable's identity."""
    type: str
    """Without qualifiers: `float`, `int64_t`, `std::vector<float>`."""
    kind: str
    """`value`, `pointer`, `array`, `reference` or `pointers` (an array of them)."""
    value: Node | None
    """The initialiser."""
    statement: Node
    """The declaration, parameter_declaration or range-for that holds it."""
    is_parameter: bool = False
    is_static: bool = False
    is_const: bool = False

    @property
    def is_object(self) -> bool:
        """Whether it holds many elements of its own (vector, std::array)."""
        holds = self.kind == "value" and ("vector<" in self.type or "array<" in self.type)
        return "*" not in self.type and (self.kind == "array" or holds)


@functools.lru_cache(maxsize=50_000)
def declarations_in(statement: Node) -> tuple[Declaration, ...]:
    """The names that a declaration or parameter_declaration introduces."""
    type_node = statement.child_by_field_name("type")
    type_text = " ".join(text(type_node).split()) if type_node is not None else "auto"
    words = {text(child) for child in statement.children if child.type in ("type_qualifier", "storage_class_specifier")}
    found = []
    for declarator in statement.children_by_field_name("declarator"):
        value, kind = None, "value"
        if declarator.type == "init_declarator":
            value = declarator.child_by_field_name("value")
            declarator = declarator.child_by_field_name("declarator")
        while declarator is not None and declarator.type not in ("identifier", "field_identifier"):
            kind = _kind(declarator.type, kind)
            inner = declarator.child_by_field_name("declarator")
            declarator = inner if inner is not None else next(iter(named(declarator)), None)
        if declarator is None:
            continue
        found.append(
            Declaration(
                name=text(declarator),
                place=declarator.start_byte,
                type=type_text,
                kind=kind,
                value=value,
                statement=statement,
                is_parameter=statement.type.endswith("parameter_declaration"),
                is_static=bool(words & {"static", "thread_local"}),
                is_const=bool(words & {"const", "constexpr"}),
            )
        )
    return tuple(found)


def _kind(node_type: str, kind: str) -> str:
    table = {"pointer_declarator": "pointer", "array_declarator": "array", "reference_declarator": "reference"}
    if {kind, table.get(node_type, "")} == {"pointer", "array"}:
        return "pointers"
    if node_type == "function_declarator":  # `std::vector<float> v(n);` parses as a function that returns one
        return "value"
    return table.get(node_type, kind)


@functools.lru_cache(maxsize=50_000)
def declaration_of(identifier: Node) -> Declaration | None:
    """The declaration that an identifier refers to, or None (a macro, a library's name, a capture)."""
    name, place = text(identifier), identifier.start_byte
    for scope in ancestors(identifier):
        found = [
            declaration
            for statement in _visible(scope)
            for declaration in declarations_in(statement)
            if declaration.name == name and declaration.place <= place
        ]
        if found:
            return found[-1]
    return None


def _visible(scope: Node) -> list[Node]:
    if scope.type in ("compound_statement", "translation_unit", "declaration_list", "case_statement"):
        return [child for child in scope.children if child.type == "declaration"]
    if scope.type == "for_statement":
        init = scope.child_by_field_name("initializer")
        return [init] if init is not None and init.type == "declaration" else []
    if scope.type == "for_range_loop":
        return [scope]
    if scope.type in ("function_definition", "lambda_expression"):
        declarator = scope.child_by_field_name("declarator")
        lists = [node for node in walk(declarator) if node.type == "parameter_list"] if declarator is not None else []
        return [child for node in lists for child in named(node) if child.type.endswith("parameter_declaration")]
    return []


def written_identifier(node: Node) -> Node | None:
    """The lvalue that an expression node changes: an assignment's left side, a ++ or --'s operand."""
    if node.type == "assignment_expression":
        return node.child_by_field_name("left")
    if node.type == "update_expression":
        return node.child_by_field_name("argument")
    return None


@functools.lru_cache(maxsize=10_000)
def assigned_places(region: Node) -> frozenset[int]:
    """Identities of the plain variables that are assigned somewhere in the region (their declarations not counted)."""
    places = set()
    for node in walk(region):
        target = written_identifier(node)
        if target is None and node.type == "pointer_expression" and text(node).startswith("&"):
            target = node.child_by_field_name("argument")
        while target is not None and target.type == "parenthesized_expression":
            target = named(target)[0]
        if target is not None and target.type == "identifier":
            declaration = declaration_of(target)
            if declaration is not None:
                places.add(declaration.place)
    return frozenset(places)


def mentions(region: Node, place: int) -> list[Node]:
    """The identifiers in the region that refer to the variable with this identity."""
    found = []
    for node in walk(region):
        if node.type == "identifier":
            declaration = declaration_of(node)
            if declaration is not None and declaration.place == place and node.start_byte != place:
                found.append(node)
    return found


def function_of(node: Node) -> Node | None:
    """The function definition around a node."""
    return next((scope for scope in ancestors(node) if scope.type == "function_definition"), None)


def declared_inside(declaration: Declaration, region: Node) -> bool:
    """Whether the variable comes to life within the region."""
    return inside(declaration.statement, region)


FLOATS = {"float", "double"}
FLOAT_CALLS = {
    "exp", "log", "tanh", "sqrt", "pow", "max", "min", "fabs", "abs", "erf", "log1p", "expm1", "fma", "fmax", "fmin",
    "sin", "cos",
}  # fmt: skip


def type_of(node: Node) -> str | None:
    """`float`, `double` or `int` for an arithmetic expression whose type can be told, else None."""
    kind = node.type
    if kind == "number_literal":
        return _literal_type(text(node))
    if kind == "identifier":
        declaration = declaration_of(node)
        if declaration is None or declaration.kind not in ("value", "reference"):
            return None
        if declaration.type == "auto":
            return type_of(declaration.value) if declaration.value is not None else None
        return _plain(declaration.type)
    if kind == "subscript_expression" or (kind == "pointer_expression" and text(node).startswith("*")):
        return _element_type(node)
    if kind in ("parenthesized_expression", "unary_expression"):
        inner = named(node)
        return type_of(inner[-1]) if inner else None
    if kind == "cast_expression":
        return _plain(text(node.child_by_field_name("type")))
    if kind == "conditional_expression":
        return _join(node.child_by_field_name("consequence"), node.child_by_field_name("alternative"))
    if kind == "binary_expression":
        return _join(node.child_by_field_name("left"), node.child_by_field_name("right"))
    return _call_type(node) if kind == "call_expression" else None


def _call_type(call: Node) -> str | None:
    from mutators.cpp.tree import arguments, called_name

    name, whole = called_name(call), text(call.child_by_field_name("function"))
    if name == "static_cast":
        return _plain(whole[whole.index("<") + 1 : whole.rindex(">")])
    if name in FLOATS or name.startswith("kb_"):
        return "float" if name.startswith("kb_") else name
    if name.endswith("f") and name[:-1] in FLOAT_CALLS:
        return "float"
    if name not in FLOAT_CALLS:
        return _returned(call, name)
    types = {type_of(argument) for argument in arguments(call)}
    if whole.startswith("std::"):
        return None if None in types else "double" if "double" in types else "float" if "float" in types else "double"
    return "double"


def _returned(call: Node, name: str) -> str | None:
    from mutators.cpp.tree import function_name, functions

    root = list(ancestors(call))[-1]
    for function in functions(root):
        if function_name(function) == name:
            return _plain(text(function.child_by_field_name("type")))
    return None


def _element_type(node: Node) -> str | None:
    base = node.child_by_field_name("argument")
    while base.type in ("subscript_expression", "parenthesized_expression", "binary_expression"):
        inner = base.child_by_field_name("argument") or base.child_by_field_name("left")
        base = inner if inner is not None else named(base)[0]
    declaration = declaration_of(base) if base.type == "identifier" else None
    if declaration is None or (declaration.kind == "value" and not declaration.is_object):
        return None
    return _plain(declaration.type.split("<")[-1].split(",")[0].rstrip("> "))


def _join(left: Node, right: Node) -> str | None:
    types = {type_of(left), type_of(right)}
    if None in types:
        return None
    return "double" if "double" in types else "float" if "float" in types else "int"


def _literal_type(literal: str) -> str:
    if literal.lower().startswith("0x") and "p" not in literal.lower():
        return "int"
    if any(mark in literal for mark in ".eE") or literal[-1] in "fF":
        return "float" if literal[-1] in "fF" else "double"
    return "int"


def _plain(type_text: str) -> str | None:
    name = type_text.replace("const", "").strip()
    return name if name in FLOATS else "int" if name in INTEGERS and name != "auto" else None

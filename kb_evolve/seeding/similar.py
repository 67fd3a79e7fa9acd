"""How much two problems have in common: the operators that their sources name, as bags, without running them."""

from __future__ import annotations

import ast
from collections import Counter

from problems.syntax import parse

INPUTS = ("get_inputs", "get_init_inputs")
"""Functions that draw inputs and compute nothing."""

NO_ARITHMETIC = """
    super init forward float int bool str len range list tuple dict isinstance print zip enumerate view reshape size dim
    numel shape contiguous to type clone detach parameter sequential modulelist module tensor registerbuffer append
    device cuda cpu ones zeros empty randn rand arange item extend full
"""
BOOKKEEPING = frozenset(NO_ARITHMETIC.split())
"""Calls that move no arithmetic."""

SIGNS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.MatMult: "matmul",
    ast.Pow: "pow",
}
SAME = {"mm": "matmul", "bmm": "matmul", "truediv": "div", "multiply": "mul", "divide": "div", "subtract": "sub"}
"""Names for what another one says too; a Linear layer stays apart from a bare product."""


def operators(source: str) -> Counter[str]:
    """How often each operator is named in a problem's source, outside the functions that draw its inputs.

    `nn.LayerNorm`, `F.layer_norm` and `x.layer_norm()` are one. A loop's body counts once: nothing is executed. Empty
    for a source that is not Python.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Counter()
    bodies = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name in INPUTS)]
    found: Counter[str] = Counter()
    for node in (inner for body in bodies for inner in ast.walk(body)):
        if isinstance(node, ast.Call):
            found[_name(node.func)] += 1
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            found[SIGNS.get(type(node.op), "")] += 1
    return Counter({name: count for name, count in found.items() if name and name not in BOOKKEEPING})


def _name(function: ast.expr) -> str:
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    plain = name.replace("_", "").lower()
    return SAME.get(plain, plain)


def similarity(a: Counter[str], b: Counter[str]) -> float:
    """Operators in common over operators in either, counted with repetition: 0 to 1 (Jaccard's index of two bags)."""
    either = (a | b).total()
    return (a & b).total() / either if either else 0.0

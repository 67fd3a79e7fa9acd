"""The loops of a kernel with their facts and site names: where every search for moves starts."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from mutators.cpp.aliases import aliased_parameters
from mutators.cpp.dependence import Independence, independence
from mutators.cpp.loops import Facts, Loop, facts_of, pragmas_before
from mutators.cpp.tree import ancestors, called_name, function_name, functions, inside, parse, text, walk
from mutators.source import KernelSource


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """A canonical loop of a kernel."""

    name: str
    """`softmax_rows/r`, `softmax_rows/c#2`: function, loop variable, which one of that name."""
    facts: Facts
    loop: Loop

    @property
    def pragmas(self) -> tuple[str, ...]:
        """The pragmas directly before the loop."""
        return tuple(text(pragma).strip() for pragma in pragmas_before(self.loop.node))

    @property
    def enclosing(self) -> tuple[Loop, ...]:
        """Canonical loops around this one, innermost first."""
        around = {scope.start_byte for scope in ancestors(self.loop.node)}
        loops = [other for other in self.facts.loops.values() if other.node.start_byte in around]
        loops = [other for other in loops if inside(self.loop.node, other.body)]
        return tuple(sorted(loops, key=lambda other: -other.node.start_byte))

    @property
    def is_parallel(self) -> bool:
        """Whether the loop or one around it already carries an OpenMP parallel pragma."""
        loops = (self.loop, *self.enclosing)
        return any("omp parallel" in text(pragma) for loop in loops for pragma in pragmas_before(loop.node))


@functools.lru_cache(maxsize=32)
def sites(kernel: KernelSource) -> tuple[Site, ...]:
    """Every canonical loop of the kernel, in the order of the text."""
    root = parse(kernel.cpp)
    found = []
    for function in functions(root):
        facts = facts_of(function, aliased_parameters(kernel, root, function))
        seen: dict[str, int] = {}
        for loop in sorted(facts.loops.values(), key=lambda loop: loop.node.start_byte):
            seen[loop.variable.name] = seen.get(loop.variable.name, 0) + 1
            count = seen[loop.variable.name]
            suffix = f"#{count}" if count > 1 else ""
            found.append(Site(f"{function_name(function)}/{loop.variable.name}{suffix}", facts, loop))
    return tuple(found)


def is_helper(site: Site) -> bool:
    """Whether the loop's function is called by another one of the file."""
    name = function_name(site.facts.function)
    root = list(ancestors(site.facts.function))[-1]
    return any(node.type == "call_expression" and called_name(node) == name for node in walk(root))


@functools.lru_cache(maxsize=512)
def independent(site: Site) -> Independence:
    """`independence` of the site's loop."""
    return independence(site.facts, site.loop)


def overlaps_omp(site: Site) -> bool:
    """Whether an OpenMP pragma stands before the loop (another would not parse)."""
    return any("omp" in pragma for pragma in site.pragmas)

"""Polynomials with integer coefficients over named atoms: the index arithmetic of array accesses."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Poly:
    """`{("i", "n"): 1, (): 4}` is i*n + 4; monomials are sorted tuples of atoms, zero coefficients left out."""

    terms: tuple[tuple[tuple[str, ...], int], ...] = ()

    @classmethod
    def of(cls, terms: dict[tuple[str, ...], int]) -> Poly:
        return cls(tuple(sorted((key, value) for key, value in terms.items() if value)))

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for key, value in other.terms:
            terms[key] = terms.get(key, 0) + value
        return Poly.of(terms)

    def __neg__(self) -> Poly:
        return Poly(tuple((key, -value) for key, value in self.terms))

    def __sub__(self, other: Poly) -> Poly:
        return self + -other

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[tuple[str, ...], int] = {}
        for key, value in self.terms:
            for other_key, other_value in other.terms:
                product = tuple(sorted(key + other_key))
                terms[product] = terms.get(product, 0) + value * other_value
        return Poly.of(terms)

    @property
    def atoms(self) -> set[str]:
        return {atom for key, _ in self.terms for atom in key}

    def split(self, atom: str) -> tuple[Poly, Poly] | None:
        """(slope, rest) with self = slope * atom + rest, or None where the atom stands in a power."""
        slope: dict[tuple[str, ...], int] = {}
        rest: dict[tuple[str, ...], int] = {}
        for key, value in self.terms:
            if key.count(atom) > 1:
                return None
            if atom in key:
                reduced = tuple(other for other in key if other != atom)
                slope[reduced] = value
            else:
                rest[key] = value
        return Poly.of(slope), Poly.of(rest)

    def substitute(self, atom: str, value: Poly) -> Poly:
        """The polynomial with the atom replaced, in any power."""
        total = Poly()
        for key, coefficient in self.terms:
            product = Poly.of({tuple(other for other in key if other != atom): coefficient})
            for _ in range(key.count(atom)):
                product = product * value
            total = total + product
        return total


ONE = Poly(((((), 1)),))


def constant(value: int) -> Poly:
    """The constant polynomial."""
    return Poly.of({(): value})


def variable(atom: str) -> Poly:
    """The polynomial that is one atom."""
    return Poly.of({(atom,): 1})


def is_nonnegative(poly: Poly, positive: set[str], natural: set[str]) -> bool:
    """Whether the polynomial can be shown to be >= 0 where `positive` atoms are >= 1 and `natural` ones >= 0.

    Each positive atom a is written 1 + a' with a' >= 0; the claim holds if no coefficient is then negative.
    Sufficient, not necessary: "no" means "not shown".
    """
    if not poly.atoms <= positive | natural:
        return False
    for atom in sorted(poly.atoms & positive):
        poly = poly.substitute(atom, ONE + variable(atom))
    return all(value >= 0 for _, value in poly.terms)

"""Tunable literals: values on lines that declare their choices in a comment, in any language of ours."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass

DECLARATION = re.compile(
    r"^(?P<head>[^\n]*?\b(?P<name>[A-Za-z_]\w*)\s*(?::\s*[\w.\[\]]+\s*)?=\s*)(?P<value>[^\s;,#/]+)"
    r"(?P<tail>\s*;?\s*(?://|\#)\s*tune:\s*(?P<choices>[^\n]+?)\s*)$",
    re.MULTILINE,
)
MACRO = re.compile(
    r"^(?P<head>\s*#define\s+(?P<name>[A-Za-z_]\w*)\s+)(?P<value>[^\s/]+)"
    r"(?P<tail>\s*//\s*tune:\s*(?P<choices>[^\n]+?)\s*)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Tunable:
    """`constexpr int TILE = 64;  // tune: 16 32 64`: a name, the value now, and the values it may take."""

    name: str
    value: str
    choices: tuple[str, ...]
    start: int
    end: int
    """Characters `[start, end)` of the source hold the value."""

    @property
    def is_ordinal(self) -> bool:
        """Whether the choices are numbers, so that near ones behave alike."""
        return all(_number(choice) is not None for choice in self.choices)

    def coordinates(self) -> dict[str, float]:
        """A place in [0, 1] for every ordinal choice; by logarithm where all are positive and span a factor of 4."""
        numbers = {choice: _number(choice) or 0.0 for choice in self.choices}
        low, high = min(numbers.values()), max(numbers.values())
        if low > 0 and high >= 4 * low:
            numbers = {choice: math.log2(number) for choice, number in numbers.items()}
            low, high = math.log2(low), math.log2(high)
        width = (high - low) or 1.0
        return {choice: (number - low) / width for choice, number in numbers.items()}


def find_tunables(source: str) -> tuple[Tunable, ...]:
    """Every tunable of a source, in the order of the file. A name declared twice is left out: it is ambiguous."""
    found = []
    for pattern in (DECLARATION, MACRO):
        for match in pattern.finditer(source):
            value, choices = match["value"], tuple(dict.fromkeys(re.split(r"[\s,]+", match["choices"])))
            if value not in choices:
                choices = (value, *choices)
            if len(choices) > 1:
                found.append(Tunable(match["name"], value, choices, match.start("value"), match.end("value")))
    names = [tunable.name for tunable in found]
    unique = [tunable for tunable in found if names.count(tunable.name) == 1]
    return tuple(sorted(unique, key=lambda tunable: tunable.start))


def set_values(source: str, values: dict[str, str]) -> str:
    """The source with the named tunables set; every other character stays."""
    for tunable in reversed(find_tunables(source)):
        if tunable.name in values:
            source = source[: tunable.start] + values[tunable.name] + source[tunable.end :]
    return source


def values_of(source: str) -> dict[str, str]:
    """The configuration of a source: name -> value."""
    return {tunable.name: tunable.value for tunable in find_tunables(source)}


def structure(source: str) -> str:
    """Hex digest of the source with its tunables' values blanked: equal for programs that differ in these alone."""
    blanked = set_values(source, {tunable.name: "?" for tunable in find_tunables(source)})
    return hashlib.sha256(blanked.encode()).hexdigest()


def _number(text: str) -> float | None:
    try:
        number = float(text.rstrip("fFuUlL")) if not text.lower().startswith("0x") else float(int(text, 16))
    except ValueError:
        return None
    return number if math.isfinite(number) else None

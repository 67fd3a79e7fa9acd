"""A figure as a page shows it: both its forms, what is read aloud in its place, and what stands below it."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Picture:
    """Addresses that hold the picture itself, and its words; or, where there is nothing to draw, the reason."""

    light: str = ""
    dark: str = ""
    alt: str = ""
    caption: str = ""
    blank: str = ""
    """Why there is nothing to see, as a sentence without its stop; the page shows it in the picture's place."""


def picture(figures: Mapping[str, Path], name: str, alt: str, caption: str, blank: str = "") -> Picture:
    """The figure NAME.svg and NAME-dark.svg of `figures`; not read where it is blank."""
    if blank:
        return Picture(blank=blank)
    return Picture(_address(figures[f"{name}.svg"]), _address(figures[f"{name}-dark.svg"]), alt, caption)


def _address(svg: Path) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.read_bytes()).decode()

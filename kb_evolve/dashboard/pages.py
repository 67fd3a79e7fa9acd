"""The templates: every text in them is made visible, capped and escaped, whoever wrote it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from kb_evolve.report.text import bytes_text, ms_text, number_text, one_line, seconds_text, speedup_text, visible

if TYPE_CHECKING:
    import jinja2

HERE = Path(__file__).parent
TEMPLATES, STATIC = HERE / "templates", HERE / "static"

TEXT_LIMIT = 200_000
"""Characters of one text on a page."""


@cache
def environment() -> jinja2.Environment:
    """Templates that know our units, and show no character that would be invisible or turn the text around."""
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    found.filters |= {
        "one": one_line,
        "short": short,
        "speedup": speedup_text,
        "ms": ms_text,
        "bytes": bytes_text,
        "seconds": seconds_text,
        "number": number_text,
        "count": lambda value: f"{value:,}",
        "words": lambda value: str(value).replace("_", " "),
    }
    return found


def rendered(template: str, **context: Any) -> str:
    """The page's HTML."""
    return environment().get_template(template).render(**context)


def short(text: object, limit: int) -> str:
    """One line of about `limit` characters, for a table."""
    line = one_line(text, 4 * limit)
    return line if len(line) <= limit else f"{line[:limit].rstrip()} …"


def _shown(value: Any) -> Any:
    """What an expression of a template puts into the page."""
    if isinstance(value, Markup | int | float):
        return value
    return visible("" if value is None else value, TEXT_LIMIT)

"""Templates of prompts: the files under mutators/prompts/, and a user's in their place."""

from __future__ import annotations

import difflib
import functools
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mutators.proposal import ProposalError
from mutators.tokens import estimate_tokens

if TYPE_CHECKING:
    from jinja2 import Environment, Template

TEMPLATES = Path(__file__).parent / "prompts"


class Pages:
    """Compiled templates by name without `.md`, such as `diff` and `parts/system`."""

    def __init__(self, folder: Path | None = None) -> None:
        """Ours, with those of the user's `folder` in their place; ProposalError for one that is wrong."""
        texts = {path.relative_to(TEMPLATES).with_suffix("").as_posix(): path.read_text("utf-8") for path in _ours()}
        if folder is not None:
            texts |= _of_user(folder, texts)
        environment = _environment()
        self._texts = texts
        self._templates = {name: _compiled(environment, name, text) for name, text in texts.items()}
        self._costs = {name: estimate_tokens(text) for name, text in texts.items()}

    def render(self, name: str, **values: Any) -> str:
        """The text of a template; ProposalError where it names something that is not given."""
        from jinja2 import TemplateError

        try:
            return self._templates[name].render(values).strip()
        except TemplateError as error:
            raise ProposalError(f"the template {name}.md cannot be filled in: {error}") from error

    def cost(self, name: str) -> float:
        """Tokens that a template has before anything is filled in."""
        return self._costs[name]

    def digest(self, names: Sequence[str]) -> str:
        """Hex digest of some templates' names and texts."""
        return digest_of({name: self._texts[name] for name in names})


def digest_of(texts: dict[str, str]) -> str:
    """Hex digest of names and texts, whatever their order."""
    return hashlib.sha256("".join(f"{name}\0{texts[name]}\0" for name in sorted(texts)).encode()).hexdigest()


@functools.cache
def _ours() -> tuple[Path, ...]:
    return tuple(sorted(TEMPLATES.rglob("*.md")))


def _environment() -> Environment:
    from jinja2 import Environment, StrictUndefined

    return Environment(undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)


def _compiled(environment: Environment, name: str, text: str) -> Template:
    from jinja2 import TemplateSyntaxError

    try:
        return environment.from_string(text)
    except TemplateSyntaxError as error:
        raise ProposalError(f"the template {name}.md is wrong in line {error.lineno}: {error.message}") from error


def _of_user(folder: Path, ours: dict[str, str]) -> dict[str, str]:
    """The templates of a user's folder; ProposalError for a folder that is not there or a name that is not ours."""
    if not folder.is_dir():
        raise ProposalError(f"the template folder {folder} does not exist; make it or leave the option out")
    found = {}
    for path in sorted(folder.rglob("*.md")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        if name not in ours:
            close = difflib.get_close_matches(name, list(ours), n=1)
            hint = f"; did you mean {close[0]}.md?" if close else f"; there are {', '.join(sorted(ours))}"
            raise ProposalError(f"{path} is no template of ours{hint}")
        try:
            found[name] = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProposalError(f"the template {path} cannot be read: {error}") from error
    return found

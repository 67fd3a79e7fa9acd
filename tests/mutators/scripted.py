"""Models that answer as they were told: by a list of replies, or with a known quality.

`Scripted` gives the reply written for (ticket number, turn). `Quality` draws what kind of reply it gives from known
chances, and the draw depends on its seed, its name and the request's (number, turn) alone: how many requests are in
flight, and in which order they come, changes nothing. Both keep what they were asked and say what each reply cost.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random

from mutators.dialogue import ModelError, Reply, Request
from mutators.proposal import Usage

Answer = str | Reply | ModelError
Write = Callable[[str, Request, Random], str]
"""(source to change, request, random) -> the whole new program."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a scripted model charges; a token is four characters."""

    prompt_usd: float = 1e-6
    completion_usd: float = 4e-6
    """Both per token."""
    latency_s: float = 0.0
    """As reported; nobody waits for it."""
    is_known: bool = True

    def usage(self, request: Request, text: str) -> Usage:
        """What a reply of this text costs."""
        prompt = sum(len(message.content) for message in request.messages) // 4
        completion = len(text) // 4
        cost_usd = prompt * self.prompt_usd + completion * self.completion_usd if self.is_known else 0.0
        return Usage(request.model, prompt, completion, cost_usd, self.latency_s, self.is_known)


class Scripted:
    """Answers (number, turn) with what is written for it; a text, a whole Reply, or a ModelError that is raised."""

    def __init__(
        self, replies: Mapping[tuple[int, int], Answer], name: str = "scripted", price: Price = Price()
    ) -> None:
        self.replies, self.name, self.price = dict(replies), name, price
        self.asked: list[Request] = []
        """In the order in which they came."""
        self._lock = threading.Lock()

    def ask(self, request: Request) -> Reply:
        """KeyError for a request that nothing is written for: a test that asks more than it says is wrong."""
        with self._lock:
            self.asked.append(request)
        answer = self.replies[request.number, request.turn]
        if isinstance(answer, ModelError):
            raise answer
        if isinstance(answer, Reply):
            return answer
        return Reply(answer, usage=self.price.usage(request, answer))


def a_version(source: str, request: Request, random: Random) -> str:
    """The source with a comment of its own: as right and as fast, and never the same."""
    return f"{source.rstrip()}\n# version {request.number}.{request.turn}.{random.getrandbits(32):08x}\n"


def not_cpp(source: str, request: Request, random: Random) -> str:
    """The source with an `#error` before its first `#include`."""
    assert "#include" in source, "not_cpp needs a source with an #include"
    return a_version(source, request, random).replace("#include", f"#error version {request.number}\n#include", 1)


def not_python(source: str, request: Request, random: Random) -> str:
    """The source with a line that is no Python."""
    return a_version(source, request, random) + "def :\n"


def unchanged(source: str, request: Request, random: Random) -> str:
    """The source."""
    del request, random
    return source


PROGRAMS: dict[str, Write] = {
    "right": a_version,
    "compile_error": not_cpp,
    "syntax_error": not_python,
    "same": unchanged,
}
"""Kinds of reply that hold a program. Others, such as `wrong`, come from the test that knows its problem."""

WITHOUT_PROGRAM = ("prose", "unmatched", "truncated", "empty", "fails")
"""Kinds of reply that hold none: no code, SEARCH text that stands nowhere, cut off in the code, nothing, ModelError."""


class Quality:
    """A model that is right with probability p, does not compile with probability q, and so on.

        Quality("good", {"right": 0.6, "compile_error": 0.3, "prose": 0.1}, source_of=lambda request: PARENT)

    `source_of` gives the source that a request is about (a test can look up `request.parent_ids`). `as_edits`: replies
    are SEARCH/REPLACE blocks instead of whole programs. `programs` adds kinds to PROGRAMS or changes them.
    """

    def __init__(
        self,
        name: str,
        chances: Mapping[str, float],
        source_of: Callable[[Request], str],
        *,
        seed: int = 0,
        as_edits: bool = False,
        programs: Mapping[str, Write] | None = None,
        price: Price = Price(),
        waits_s: float = 0.0,
    ) -> None:
        self.name, self.chances, self.source_of, self.seed = name, dict(chances), source_of, seed
        self.as_edits, self.programs, self.price, self.waits_s = (
            as_edits,
            PROGRAMS | dict(programs or {}),
            price,
            waits_s,
        )
        unknown = set(chances) - set(self.programs) - set(WITHOUT_PROGRAM)
        assert not unknown, f"no way to write replies of kind {sorted(unknown)}"
        assert abs(sum(chances.values()) - 1) < 1e-9, f"chances must sum to 1, found {chances}"
        self.asked: list[Request] = []
        self._lock = threading.Lock()

    def kind_of(self, number: int, turn: int) -> str:
        """What kind of reply this request gets."""
        random = Random(f"{self.seed}:{self.name}:{number}:{turn}:kind")
        return random.choices(list(self.chances), list(self.chances.values()))[0]

    def ask(self, request: Request) -> Reply:
        with self._lock:
            self.asked.append(request)
        if self.waits_s:
            time.sleep(self.waits_s)
        kind = self.kind_of(request.number, request.turn)
        reply = self._reply(kind, request)
        usage = self.price.usage(request, reply.text)
        if kind == "fails":
            raise ModelError("server", "scripted failure", usage)
        return replace(reply, usage=usage)

    def _reply(self, kind: str, request: Request) -> Reply:
        random = Random(f"{self.seed}:{self.name}:{request.number}:{request.turn}:text")
        source = self.source_of(request)
        if kind in self.programs:
            return Reply(self._form(source, self.programs[kind](source, request, random), kind))
        if kind == "unmatched":
            return Reply(edit_of("no such line\n", "another line\n"))
        if kind == "truncated":
            return Reply(program_of(source)[: len(source) // 2], finish_reason="length")
        return Reply("A larger tile would be faster." if kind == "prose" else "")

    def _form(self, source: str, program: str, kind: str) -> str:
        code = edit_of(source, program) if self.as_edits else program_of(program)
        return f"RATIONALE: a scripted reply, {kind}.\n\n{code}"


def program_of(source: str) -> str:
    """A reply's code block with a whole program."""
    return f"```python\n{source.rstrip()}\n```\n"


def edit_of(search: str, replacement: str) -> str:
    """A SEARCH/REPLACE block."""
    return f"<<<<<<< SEARCH\n{search.rstrip()}\n=======\n{replacement.rstrip()}\n>>>>>>> REPLACE\n"

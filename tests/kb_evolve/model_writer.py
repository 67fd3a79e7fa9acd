"""A language model of known quality behind a real server: what it answers follows from the ticket's number alone."""

from __future__ import annotations

import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "mutators"))

from openai_server import PRICE_IN, PRICE_OUT, Act, OpenAIServer

from fitness.evaluation import Verdict
from fitness.replay import Failure
from islands.store import open_store
from mutators.fence import make_fence

MODEL = "openai/scripted"
KEY_NAME, KEY = "SCRIPTED_KEY", "sk-scripted-0123456789abcdef"

KINDS = {
    "right": (1, "candidate"),
    "broken": (1, "candidate"),
    "wrong": (1, "candidate"),
    "mended": (2, "candidate"),
    "stale": (2, "refused"),
    "prose": (2, "refused"),
    "cut": (2, "refused"),
    "filtered": (1, "refused"),
    "repeated": (1, "duplicate"),
}
"""Kind of an answer -> (requests that its ticket takes, how the attempt ends). The first of an island's repeated
programs is new."""

FAILURES = (
    Failure(r"BLOCK = 1\d{5};", Verdict.COMPILE_ERROR, at_build=True),
    Failure(r"BLOCK = 2\d{5};", Verdict.WRONG_RESULT),
)
"""What the workbench must be told of the programs of kind `broken` and `wrong`."""

MARK = re.compile(r"In this message MARK is `([0-9a-f]{16})`")
PROGRAM = re.compile(r'<data-[0-9a-f]{16} kind="program #\d+">\n(.*?)\n</data-', re.DOTALL)
TUNED = re.compile(r"constexpr int BLOCK = [^\n]*\nconstexpr int UNROLL = [^\n]*")
CHOICES = "// tune: 4 8 16 32 64 128 256 512"


@dataclass(frozen=True)
class Asked:
    """One request."""

    number: int
    """The ticket's."""
    turn: int
    kind: str
    takes_edits: bool


class Writer:
    """The model. `shares` are the kinds' relative frequencies; `fault` may give another Act for the n-th request."""

    def __init__(
        self,
        db: Path,
        shares: Mapping[str, float],
        *,
        delay_s: Callable[[int, int], float] = lambda number, turn: 0.0,
        fault: Callable[[int], Act | None] = lambda n: None,
        said: Callable[[int], str] = lambda number: f"other tile sizes for ticket {number}",
        remark: Callable[[int], str] = lambda number: "",
    ) -> None:
        """`said` is the answer's rationale, `remark` a comment in its program."""
        self.db, self.shares, self.delay_s, self.fault = db, dict(shares), delay_s, fault
        self.said, self.remark = said, remark
        self.asked: list[Asked] = []
        """In the order of the server's own list of requests served."""
        self._numbers: dict[str, int] = {}
        self._lock = threading.Lock()

    def kind(self, number: int) -> str:
        return Random(f"kind:{number}").choices(list(self.shares), list(self.shares.values()))[0]

    def outcomes(self, numbers: range, islands: int) -> Counter[str]:
        """How the attempts of these tickets end."""
        found: Counter[str] = Counter()
        seen: set[int] = set()
        for number in numbers:
            is_first = self.kind(number) == "repeated" and number % islands not in seen
            if is_first:
                seen.add(number % islands)
            found["candidate" if is_first else KINDS[self.kind(number)][1]] += 1
        return found

    def requests(self, numbers: range) -> int:
        return sum(KINDS[self.kind(number)][0] for number in numbers)

    def __call__(self, body: dict[str, Any], n: int) -> Act:
        act = self.fault(n)
        messages = body["messages"]
        number = self.number(messages[1]["content"])
        turn = sum(message["role"] == "assistant" for message in messages)
        takes_edits = "<<<<<<< SEARCH" in messages[1]["content"].partition("# Form of the answer")[2]
        with self._lock:
            self.asked.append(Asked(number, turn, self.kind(number) if act is None else "fault", takes_edits))
        return act if act is not None else self._answer(number, turn, messages[1]["content"], takes_edits)

    def number(self, prompt: str) -> int:
        """The ticket of a prompt, which its mark tells who knows the run's secret."""
        with self._lock:
            if not self._numbers:
                with open_store(self.db, read_only=True) as store:
                    secret = bytes.fromhex(store.runs()[0].config["prompt_secret"])
                self._numbers = {make_fence(secret, number).mark: number for number in range(2000)}
        found = MARK.search(prompt)
        assert found is not None, "a prompt names its mark"
        return self._numbers[found[1]]

    def _answer(self, number: int, turn: int, prompt: str, takes_edits: bool) -> Act:
        kind, delay_s = self.kind(number), self.delay_s(number, turn)
        base = PROGRAM.search(prompt)
        assert base is not None, "a prompt shows a program"
        before = TUNED.search(base[1])
        assert before is not None
        after = self._tuned(kind, number) + (f"\n/* {self.remark(number)} */" if self.remark(number) else "")
        if kind == "filtered":
            return Act("", finish="content_filter", delay_s=delay_s)
        if kind == "prose" or (kind == "mended" and turn == 0):
            return Act("Tile sizes matter, but I would rather not.", delay_s=delay_s)
        search = before[0] + (f"\nint no_such_line_{number};" if kind == "stale" else "")
        if takes_edits:
            change = f"<<<<<<< SEARCH\n{search}\n=======\n{after}\n>>>>>>> REPLACE"
        else:
            whole = "no program" if kind == "stale" else base[1].replace(before[0], after)
            change = f"```python\n{whole}\n```"
        text = f"RATIONALE: {self.said(number)}\n\n{change}\n"
        if kind == "cut":
            return Act(text[: len(text) // 2], finish="length", delay_s=delay_s)
        return Act(text, delay_s=delay_s)

    def _tuned(self, kind: str, number: int) -> str:
        """The two tunables of the answer's program; that of kind `repeated` is the same up to comments."""
        random = Random(f"tuned:{number}")
        unroll, block = 2 ** random.randint(2, 9), (2 * number + 1) * 2 ** random.randint(0, 4)  # no two are equal
        block = {"broken": 100_000 + number, "wrong": 200_000 + number}.get(kind, block)
        if kind == "repeated":
            return f"constexpr int BLOCK = 77;  {CHOICES}\nconstexpr int UNROLL = 32;  {CHOICES}\n// again {number}"
        return f"constexpr int BLOCK = {block};  {CHOICES}\nconstexpr int UNROLL = {unroll};  {CHOICES}"


def settings(server: OpenAIServer, **changes: Any) -> dict[str, Any]:
    """Options of a Search that asks the server's model and pays its prices; the key's variable must be set."""
    given = {"api_base": server.url, "api_key_env": KEY_NAME, "price_in": PRICE_IN, "price_out": PRICE_OUT}
    spec = {**given, "timeout_s": 10.0, "max_tokens": 2_000, **changes}
    return {"model": (MODEL,), "settings": {MODEL: spec}}

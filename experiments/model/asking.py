"""The operators of the experiment on a real client: litellm, a ledger, and a journal in memory."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterator

from experiments.model.lines import Number
from fitness.machine import device_name
from kb_evolve.briefing import cpu_facts
from mutators.brief import Brief
from mutators.dialogue import ModelError, Reply, Request
from mutators.knobs import Knobs, KnobsOptions
from mutators.ledger import Ledger
from mutators.llm import Client, ModelSpec
from mutators.operators import ModelOperator, OperatorOptions
from mutators.prompt import PromptBuilder
from mutators.proposal import Mutator
from problems.problem import Problem

TEMPERATURE = 0.8
PROMPT_TOKENS = 5_000
REPLY_TOKENS = 400
"""Most for `diff` and `rewrite`; two turns of prompt and reply fit into 8,192 tokens."""
REPLY_TIMEOUT_S = 300.0


class Notes:
    """A journal that lasts as long as the process. Several threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._replies: dict[tuple[int, int], Reply] = {}

    def reply(self, number: int, turn: int) -> Reply | None:
        with self._lock:
            return self._replies.get((number, turn))

    def open(self, request: Request, worst_usd: float | None) -> None:
        del request, worst_usd  # nothing outlives the process, so there is nothing to find again

    def close(self, request: Request, reply: Reply) -> None:
        with self._lock:
            self._replies[request.number, request.turn] = reply

    def fail(self, request: Request, error: ModelError) -> None:
        del request, error

    def replies_of(self, number: int) -> list[Reply]:
        """All replies to a ticket, in the order of its turns."""
        with self._lock:
            return [reply for (one, _), reply in sorted(self._replies.items()) if one == number]


@contextlib.contextmanager
def operators_on(problem: Problem, model_name: str, api_base: str, notes: Notes) -> Iterator[dict[str, Mutator]]:
    """The operators by name, all asking one model, which costs nothing."""
    spec = ModelSpec(
        model_name, api_base, price_in=0.0, price_out=0.0, max_in_flight=1, retries=0, timeout_s=REPLY_TIMEOUT_S
    )
    brief = Brief(problem.id, problem.source, "cpp", device_name=device_name(), facts=cpu_facts())
    prompts = PromptBuilder(brief, secrets.token_bytes(32), PROMPT_TOKENS)
    options = OperatorOptions(max_tokens=REPLY_TOKENS, temperature=TEMPERATURE)
    with Client([spec], Ledger(), notes) as client:
        made: list[Mutator] = [
            Number(client, model_name, TEMPERATURE),
            Knobs(client, model_name, KnobsOptions(temperature=TEMPERATURE, max_tokens=200)),
            ModelOperator("diff", client, model_name, prompts, options),
            ModelOperator("rewrite", client, model_name, prompts, options),
        ]
        yield {operator.name: operator for operator in made}

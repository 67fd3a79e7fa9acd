"""Novelty by meaning, through a real HTTP server: near programs count as one, whatever is odd about a vector as new."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from memory_journal import MemoryJournal
from openai_server import PRICE_IN, Act, OpenAIServer, by_words, texts_of

from islands.candidate import Candidate
from mutators.embedding import Embeddings, Likeness
from mutators.ledger import Ledger
from mutators.llm import Client, ClientOptions, ModelSpec
from mutators.vectors import packed, unpacked

MODEL = "openai/words"


def member(number: int, source: str) -> Candidate:
    return Candidate(f"run00000-{number:06d}", number, 0, generation=0, backend="cpp", source=source)


LOOPS, TILES = member(1, "for for while"), member(2, "tile tile vector")


class Asked:
    """A server that embeds, a client of it, and what both remember."""

    def __init__(self, *acts: Act, max_usd: float | None = None) -> None:
        self.server = OpenAIServer(acts=acts or (Act(),))
        self.journal = MemoryJournal()
        self.ledger = Ledger(max_usd)
        spec = ModelSpec(MODEL, self.server.url, price_in=PRICE_IN, price_out=0.0, retries=1)
        self.client = Client([spec], self.ledger, self.journal, ClientOptions(backoff_s=0.01))

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.server.close()

    def embeddings(self, recorded: tuple[str, ...] = ()) -> Embeddings:
        return Embeddings(self.client, MODEL, recorded)


def test_the_most_alike_member_is_found_and_paid_for_to_the_token() -> None:
    with Asked() as asked:
        found = asked.embeddings().nearest(7, 2, "for while", [LOOPS, TILES])
        assert found.id == LOOPS.id and found.cosine == pytest.approx(3 / math.sqrt(10), abs=1e-3)
        own, others = asked.server.served
        assert texts_of(own.body) == ["for while"] and texts_of(others.body) == [LOOPS.source, TILES.source]
        assert "max_tokens" not in own.body and "messages" not in own.body
        assert asked.ledger.spent_pico == own.pico + others.pico > own.pico > 0
        assert found.usage.cost_usd == pytest.approx(own.pico / 1e12), "a ticket pays for its own program"
        assert asked.ledger.summary()["by_operator"]["embed"]["requests"] == 2


def test_of_equals_the_first_is_named_and_without_members_nobody_is_asked() -> None:
    with Asked() as asked:
        embeddings = asked.embeddings()
        assert embeddings.nearest(7, 0, "for", []) == Likeness() and not asked.server.served
        assert embeddings.nearest(7, 0, "for for while", [TILES, member(3, "for for while "), LOOPS]).id.endswith("3")


def test_every_program_is_embedded_once_also_by_the_next_process() -> None:
    with Asked() as asked:
        embeddings = asked.embeddings()
        for number, source in enumerate(("for", "while", "for")):
            embeddings.nearest(number, 0, source, [LOOPS, TILES])
        texts = [texts_of(served.body) for served in asked.server.served]
        assert texts == [["for"], [LOOPS.source, TILES.source], ["while"]]
        again = asked.embeddings(tuple(reply.text for reply in asked.journal.replies.values()))
        assert again.nearest(9, 0, "for", [LOOPS, TILES]).id == LOOPS.id
        assert len(asked.server.served) == 3


def test_many_tickets_at_once_ask_for_a_member_once() -> None:
    with Asked(Act(delay_s=0.02)) as asked, ThreadPoolExecutor(8) as pool:
        embeddings = asked.embeddings()
        found = list(
            pool.map(lambda number: embeddings.nearest(number, 0, "for " * number, [LOOPS, TILES]), range(1, 9))
        )
        assert {one.id for one in found} == {LOOPS.id} and all(one.usage.cost_usd > 0 for one in found)
        assert len(asked.server.served) == 9


def test_a_recorded_reply_answers_for_no_other_program() -> None:
    with Asked() as asked:
        asked.embeddings().nearest(7, 0, "for while", [LOOPS])
        found = asked.embeddings().nearest(7, 0, "tile tile", [TILES])  # ticket 7 again, with another program
        assert found.id == "" and len(asked.server.served) == 2


@pytest.mark.parametrize(
    ("acts", "requests"),
    [
        ((Act(status=500),) * 2, 2),
        ((Act(status=401),), 1),
        ((Act(manner="html"),), 1),
        ((Act(rows=0),), 1),
        ((Act(), Act(rows=0)), 2),
    ],
)
def test_without_an_embedding_a_program_is_new_and_the_next_one_is_tried(acts: tuple[Act, ...], requests: int) -> None:
    with Asked(*acts, Act()) as asked:
        embeddings = asked.embeddings()
        assert embeddings.nearest(1, 0, "for while", [LOOPS]).id == ""
        assert len(asked.server.served) == requests
        assert embeddings.nearest(2, 0, "for for while", [LOOPS]).id == LOOPS.id
        assert asked.ledger.summary()["in_flight"] == 0


def test_what_might_pass_the_cap_is_not_asked() -> None:
    with Asked(max_usd=1e-6) as asked:
        assert asked.embeddings().nearest(1, 0, "for", [LOOPS]).id == ""
        assert not asked.server.served and asked.ledger.spent_pico == 0


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1.0, 0.0, 0.0]])
def test_a_vector_without_a_direction_or_of_another_length_is_like_nothing(vector: list[float]) -> None:
    recorded = packed(["odd", LOOPS.source], [vector, [1.0, 0.0]])
    with Asked() as asked:
        assert asked.embeddings((recorded,)).nearest(1, 0, "odd", [LOOPS]) == Likeness(LOOPS.id, 0.0)


def test_a_record_keeps_the_angle_between_vectors() -> None:
    vectors = [[math.cos(angle), math.sin(angle), *[0.001] * 1534] for angle in (0.0, 0.1)]
    first, second = unpacked(packed(["a", "b"], vectors)).values()
    exact = sum(a * b for a, b in zip(*vectors, strict=True)) / (1 + 1534e-6)
    assert float(first @ second) == pytest.approx(exact, abs=1e-3)


@pytest.mark.parametrize("text", ["", "[]", "17", '{"a": 1}', '{"a": "not base64!"}', '{"a": "AAA="}', "[" * 100_000])
def test_a_record_that_holds_no_vectors_is_passed_over(text: str) -> None:
    with Asked() as asked:
        assert asked.embeddings((text,)).nearest(1, 0, "for", [LOOPS]).id == LOOPS.id


def test_vectors_of_another_number_than_the_texts_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        packed(["a", "b"], [by_words("for")])

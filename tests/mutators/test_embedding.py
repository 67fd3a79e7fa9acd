"""Novelty by meaning: near programs count as one, whatever is odd about a vector counts as new."""

from __future__ import annotations

import json
import math
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from islands.candidate import Candidate
from mutators.dialogue import ModelError
from mutators.embedding import EmbeddingNovelty, through_litellm

WORDS = ("for", "while", "tile", "vector")


def by_words(text: str) -> list[float]:
    """How often each of a few words stands in the text."""
    return [float(text.count(word)) for word in WORDS]


def member(number: int, source: str) -> Candidate:
    return Candidate(f"run00000-{number:06d}", number, 0, generation=0, backend="cpp", source=source)


LOOPS, TILES = member(1, "for for while"), member(2, "tile tile vector")


def test_the_most_alike_member_is_found_with_its_cosine() -> None:
    found = EmbeddingNovelty(by_words, 0.9).nearest("for while", [LOOPS, TILES])
    assert found == ("run00000-000001", pytest.approx(3 / math.sqrt(10)))


@pytest.mark.parametrize(("threshold", "expected"), [(0.94, "run00000-000001"), (0.95, None)])
def test_from_the_threshold_on_a_source_repeats_a_member(threshold: float, expected: str | None) -> None:
    assert EmbeddingNovelty(by_words, threshold).name_of("for while", [LOOPS, TILES]) == expected


def test_of_equals_the_first_is_named_and_without_members_all_is_new() -> None:
    novelty = EmbeddingNovelty(by_words, 0.9)
    assert novelty.name_of("for for while", [TILES, member(3, "for for while "), LOOPS]) == "run00000-000003"
    assert novelty.nearest("for", []) is None and novelty.name_of("for", []) is None


def test_every_source_is_embedded_once() -> None:
    asked: Counter[str] = Counter()

    def counting(text: str) -> list[float]:
        asked[text] += 1
        return by_words(text)

    novelty = EmbeddingNovelty(counting, 0.9)
    for source in ("for", "while", "for"):
        novelty.name_of(source, [LOOPS, TILES])
    assert set(asked.values()) == {1} and len(asked) == 4


@pytest.mark.parametrize("vector", [[], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0], [1.0, 0.0, 0.0]])
def test_a_vector_without_a_direction_or_of_another_length_is_like_nothing(vector: list[float]) -> None:
    novelty = EmbeddingNovelty(lambda text: vector if text == "odd" else [1.0, 0.0], 0.1)
    assert novelty.nearest("odd", [LOOPS]) == (LOOPS.id, 0.0)
    assert novelty.name_of("odd", [LOOPS]) is None


def test_without_an_embedding_a_source_is_new_and_the_next_one_is_tried() -> None:
    def failing(text: str) -> list[float]:
        if text == "broken":
            raise ModelError("connection", "nobody listens")
        return by_words(text)

    novelty = EmbeddingNovelty(failing, 0.9)
    assert novelty.name_of("broken", [LOOPS]) is None
    assert novelty.name_of("for for while", [LOOPS]) == LOOPS.id


@pytest.mark.parametrize("threshold", [0.0, -1.0, 1.1, math.nan])
def test_a_threshold_that_makes_no_sense_is_refused(threshold: float) -> None:
    with pytest.raises(ValueError, match="threshold"):
        EmbeddingNovelty(by_words, threshold)


class Server(BaseHTTPRequestHandler):
    """Embeds by words; answers 500 to a text that asks for it."""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        (text,) = asked["input"]
        vector = {"object": "embedding", "index": 0, "embedding": by_words(text)}
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        answer = {"object": "list", "model": asked["model"], "data": [vector], "usage": usage}
        body = json.dumps(answer).encode()
        self.send_response(500 if "fail" in text else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def api_base() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_server_that_speaks_openais_protocol_gives_the_vectors(api_base: str) -> None:
    embed = through_litellm("openai/words", api_base)
    assert embed("for tile tile") == by_words("for tile tile")
    with pytest.raises(ModelError, match="openai/words gave no embedding") as caught:
        embed("fail")
    assert caught.value.kind == "server"
    assert EmbeddingNovelty(embed, 0.9).name_of("for for while", [TILES, LOOPS]) == LOOPS.id

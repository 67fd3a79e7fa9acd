"""JSON text: what goes in comes out, and SQLite can read it."""

from __future__ import annotations

import math
import sqlite3

from hypothesis import given, settings
from hypothesis import strategies as st

from islands.codec import decode, encode, plain

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(VALUES)
def test_every_json_value_and_infinity_comes_back(value):
    text = encode(value)
    assert decode(text) == value
    assert sqlite3.connect(":memory:").execute("SELECT json_valid(?)", [text]).fetchone() == (1,)


def test_an_object_that_only_looks_like_a_named_number_stays_an_object():
    assert decode(encode({"$float": "8", "x": {"$float": "wide"}})) == {
        "$float": "8",
        "x": {"$float": "wide"},
    }
    assert decode(encode({"$float": [math.inf]})) == {"$float": [math.inf]}


def test_nan_comes_back_as_nan():
    assert math.isnan(decode(encode({"loss": [math.nan]}))["loss"][0])


@settings(max_examples=50, deadline=None)
@given(st.text(st.characters()))
def test_plain_text_can_always_be_stored(text):
    plain(text).encode()


def test_plain_text_stays_as_it_is():
    assert plain("ü \U0001f600 \\ud800") == "ü \U0001f600 \\ud800"

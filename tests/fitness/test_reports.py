"""What a build says of itself is bounded and harmless, whatever it wrote."""

from __future__ import annotations

import json

import pytest

from fitness import reports


@pytest.fixture
def wrote(tmp_path):
    """wrote(text) -> the products folder of a build that reported this of one extension."""

    def write(text):
        folder = tmp_path / "extension"
        folder.mkdir(exist_ok=True)
        (folder / "build.json").write_text(text)
        (tmp_path / "features.json").write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"route": ', "[" * 8_000])
def test_what_is_no_report_says_nothing(wrote, text):
    products = wrote(text)
    assert reports.routes_of(products) == () and reports.features_of(products) == {}


def test_a_route_is_short_and_printable(wrote):
    products = wrote(json.dumps({"route": "\x1b[2J\ud800" + "x" * 1_000}))
    (route,) = reports.routes_of(products)
    assert route == "?[2J?" + "x" * 15


def test_a_route_that_was_taken_for_want_of_a_quicker_one_says_why(wrote):
    products = wrote(json.dumps({"route": "full", "fallback_reason": "uses \x1btorch::nn" + "n" * 1_000}))
    (said,) = reports.features_of(products)["build_fallbacks"]
    assert said.startswith("full: uses ?torch::nnn") and len(said) == len("full: ") + reports.MOST_REASON
    for reason in ("", None, ["x"]):
        products = wrote(json.dumps({"route": "slim", "fallback_reason": reason}))
        assert reports.features_of(products) == {"build_routes": ["slim"]}


def test_counts_that_are_none_are_left_out(wrote):
    kernel = {"registers": 32, "spill_bytes": 0, "shared_bytes": 4096}
    said = {"num_warps": -1, "num_stages": True, "kernels": [kernel, {**kernel, "registers": "many"}, 7]}
    found = reports.features_of(wrote(json.dumps(said)))
    assert found == {"kernels": 1, **kernel, "kernel_resources": [[32, 0, 4096]]}

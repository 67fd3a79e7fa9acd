"""The Anatomy as JSON: what a child may say, and what is refused."""

import json
import math

import pytest

from problems.anatomy import (
    Anatomy,
    Finding,
    TensorForm,
    anatomy_from_json,
    finding_from_json,
    peaks_from_json,
)

ANATOMY = Anatomy(
    traced="real tensors",
    inputs=(TensorForm("x", (2, 3), "float32", 24, False),),
    arguments=("eps=1e-05",),
    outputs=(TensorForm("output", (), "int64", 8),),
    parameter_count=5,
    parameter_bytes=20,
    matmul_flop=10**15,
    pointwise_ops=7,
    bytes_moved=32,
    reduction_length=3,
    operators={"mm": 1},
)


def test_an_anatomy_survives_json():
    assert anatomy_from_json(json.loads(json.dumps(ANATOMY.to_json()))) == ANATOMY


def test_its_json_has_the_derived_numbers():
    document = ANATOMY.to_json()
    assert (document["flop"], document["intensity"]) == (10**15 + 7, (10**15 + 7) / 32)


def test_a_finding_survives_json_also_with_an_infinite_error():
    findings = [Finding("zeros", "own", True, 0.5), Finding("identity", "normal", False, math.inf)]
    document = json.loads(json.dumps(Anatomy.findings_to_json(findings), allow_nan=False))
    assert [finding_from_json(entry) for entry in document] == findings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("traced", None),
        ("inputs", {}),
        ("inputs", [{"name": "x", "shape": [-1], "dtype": "float32", "nbytes": 4, "contiguous": True}]),
        ("inputs", [{"name": "x", "shape": [1], "dtype": 3, "nbytes": 4, "contiguous": True}]),
        ("arguments", [1]),
        ("matmul_flop", 1.5),
        ("bytes_moved", True),
        ("bytes_moved", -1),
        ("operators", {"mm": "many"}),
    ],
)
def test_a_field_of_another_form_is_refused(field, value):
    with pytest.raises(ValueError, match="expected"):
        anatomy_from_json(json.loads(json.dumps(ANATOMY.to_json())) | {field: value})


@pytest.mark.parametrize("document", [None, [], "x", {}, {"name": "cpu", "flop_per_s": {"fp32": "fast"}}])
def test_nothing_else_is_taken_for_a_peak(document):
    with pytest.raises(ValueError, match="expected"):
        peaks_from_json(document)

"""Mutators by name."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mutators.proposal import ProposalError
from mutators.registry import create, names


@pytest.mark.parametrize("name", names())
def test_every_name_makes_a_mutator_of_that_name(name):
    assert create(name).name == name


def test_options_reach_the_mutator():
    assert create("transform", {"allow_fast_math": True}).options.allow_fast_math


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ProposalError, match="did you mean 'transform'"):
        create("transfrom")


def test_an_unknown_option_suggests_the_nearest():
    with pytest.raises(ProposalError, match="did you mean 'allow_fast_math'"):
        create("transform", {"allow_fastmath": True})


def test_importing_the_room_imports_neither_numpy_nor_tree_sitter():
    code = "import sys, mutators.registry as r; [r.create(n) for n in r.names()]; import mutators.choose; "
    code += "print({'numpy', 'tree_sitter', 'torch'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=".")
    assert done.stdout.strip() == "set()", done.stdout + done.stderr

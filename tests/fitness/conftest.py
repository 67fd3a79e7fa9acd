"""One workbench for all tests of this folder: its judge keeps problems ready."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fitness.workbench import Workbench

sys.path.append(str(Path(__file__).parent))  # helper modules beside the tests are found by their own names


@pytest.fixture(scope="session")
def workbench():
    with Workbench() as bench:
        yield bench

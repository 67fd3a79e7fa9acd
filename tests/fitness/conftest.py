"""One workbench for all tests of this folder: its judge keeps problems ready."""

from __future__ import annotations

import pytest

from fitness.workbench import Workbench


@pytest.fixture(scope="session")
def workbench():
    with Workbench() as bench:
        yield bench

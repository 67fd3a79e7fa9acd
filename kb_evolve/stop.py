"""Ctrl-C and SIGTERM: the first asks the loop to finish, the second ends the process."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
LAST_WORDS_S = 2.0
"""Longest time that the clean-up of a second Ctrl-C may take."""


class Stop:
    """A flag that signals set while the context is open; does nothing outside the main thread."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, Any] = {}
        self._cleanup: Callable[[], None] | None = None

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def on_second(self, cleanup: Callable[[], None]) -> None:
        """What is done, in at most LAST_WORDS_S, before a second signal ends the process."""
        self._cleanup = cleanup

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if not self.requested:
            self.requested = True
            return
        if self._cleanup is not None:
            helper = threading.Thread(target=self._cleanup, daemon=True)
            helper.start()
            helper.join(LAST_WORDS_S)
        os._exit(128 + number)

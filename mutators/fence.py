"""Untrusted text made fit for a prompt: cleaned, capped, and wrapped in tags that it cannot close.

Whatever a candidate, a compiler, an exception, a comparison or a model wrote is data. It stands in a prompt like this,
with a mark of 16 hexadecimal digits that is derived from the run's secret and the ticket's number:

    <data-0f3a... kind="compiler output" cut="4,992,000 of 5,000,000 characters">
    text
    </data-0f3a...>

A text cannot know the mark before the prompt is made, and where it holds a mark all the same (a model repeated it) the
mark is struck out. Every tag that only looks like ours, and the control words of chat templates (`<|im_end|>`), lose
their meaning too: a local server would obey them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from mutators.proposal import ProposalError

LEAST_SECRET = 16
"""Bytes of a run's secret."""
STRUCK = "[mark removed]"

ANSI = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|\x1b[]PX^_][^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)"  # operating system commands and other strings
    r"|\x1b[@-Z\\^_]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
"""ECMA-48 escape sequences; the parts of a broken one are made visible instead."""

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad"
    "\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bcaf\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
"""What a reader does not see or what changes how the rest is seen: control, format (bidirectional, zero width, tags),
surrogate and private characters, separators of lines that are none, variation selectors, fillers."""

LOOKALIKE = re.compile(r"<(?=\s*/?\s*data-)", re.IGNORECASE)
CHAT_WORD = re.compile(
    r"<(?=[|\uff5c][^<>|\uff5c\n]{1,40}[|\uff5c]>)|<(?=/?(?:start_of_turn|end_of_turn|eos|bos)>|</?SYS>>|/s>)"
    r"|\[(?=/?INST\])"
)
"""The first character of a control word of a chat template."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Wraps texts for one prompt."""

    mark: str
    """16 hexadecimal digits that no text can know."""
    others: tuple[str, ...] = ()
    """Further marks in the same prompt, struck out of every text as well."""

    def block(self, kind: str, text: str, limit: int) -> str:
        """`text` between tags of its own lines, at most about `limit` characters of it; `kind` is ours."""
        kept, cut = self._kept(text, limit)
        note = f' cut="{cut:,} of {len(text):,} characters"' if cut else ""
        return f'<data-{self.mark} kind="{kind}"{note}>\n{kept}\n</data-{self.mark}>'

    def rows(self, kind: str, lines: Sequence[str]) -> str:
        """Lines whose untrusted parts came from `line`, between tags."""
        return f'<data-{self.mark} kind="{kind}">\n' + "\n".join(lines) + f"\n</data-{self.mark}>"

    def line(self, text: str, limit: int) -> str:
        """`text` in one line, to be put into a block: it cannot begin a line there."""
        kept, _ = self._kept(text, limit)
        return " ".join(kept.split())

    def plain(self, text: str, limit: int) -> str:
        """`text` cleaned and capped without tags, for a message that is altogether the model's own."""
        kept, _ = self._kept(text, limit)
        return kept

    def _kept(self, text: str, limit: int) -> tuple[str, int]:
        """(what is shown, characters cut). Of a long text only the ends are cleaned, with room for what vanishes."""
        if len(text) <= 4 * limit:
            return capped(self._harmless(clean(text)), limit)
        tail_room = limit // 4
        head = self._harmless(clean(text[: 3 * limit]))[: limit - tail_room]
        tail = self._harmless(clean(text[-limit:]))
        tail = tail[max(0, len(tail) - tail_room) :]
        cut = len(text) - len(head) - len(tail)
        return _joined(head, cut, tail), cut

    def _harmless(self, text: str) -> str:
        text = LOOKALIKE.sub("&lt;", text) if "data-" in text.lower() else text
        text = CHAT_WORD.sub(lambda found: found[0] + " ", text)
        for mark in (self.mark, *self.others):
            if mark in text.lower():
                text = re.sub(mark, STRUCK, text, flags=re.IGNORECASE)
        return text


def make_fence(secret: bytes, number: int | str, others: tuple[str, ...] = ()) -> Fence:
    """The fence of ticket `number` in a run with `secret`; ProposalError where the secret is too short to be one."""
    if len(secret) < LEAST_SECRET:
        raise ProposalError(
            f"the secret of the prompts' fences has {len(secret)} bytes, needs {LEAST_SECRET}: "
            "make it with secrets.token_bytes(32)"
        )
    key = hashlib.blake2b(secret, digest_size=32).digest()
    return Fence(hashlib.blake2b(str(number).encode(), key=key, digest_size=8).hexdigest(), others)


def clean(text: str) -> str:
    """`text` without escape sequences, other unseen characters written as `\\x07` or `\\u202e`; invalid ones as U+FFFD.

    Only tab and line feed are left of all control characters.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = ANSI.sub("", text) if "\x1b" in text or "\x9b" in text else text
    return UNSEEN.sub(_visible, text)


def capped(text: str, limit: int) -> tuple[str, int]:
    """(head and tail of `text` with a line between them that says how much is missing, characters cut).

    Three quarters of the room are the head's: a compiler's first error says most.
    """
    if len(text) <= limit:
        return text, 0
    tail_room = limit // 4
    cut = len(text) - limit
    return _joined(text[: limit - tail_room], cut, text[len(text) - tail_room :]), cut


def _joined(head: str, cut: int, tail: str) -> str:
    return f"{head}\n[... {cut:,} characters cut ...]\n{tail}"


def _visible(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xD800 <= code <= 0xDFFF or code in (0xFFFE, 0xFFFF):
        return "\ufffd"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

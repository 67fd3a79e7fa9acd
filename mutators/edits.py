"""SEARCH/REPLACE edits of a reply, applied to a source: all of them exactly where they say, or none."""

from __future__ import annotations

import difflib
import heapq
import io
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from mutators.fence import clean
from mutators.proposal import Refusal

MARKERS = ("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE")
MOST_CHARACTERS = 1_000_000
"""Of a reply and of a source; a longer one is refused unread. A kernel has some 10,000."""
MOST_EDITS = 64
MOST_FAULTS = 4
"""Faults told at once; the model gets one more turn, so it should see more than the first."""
SHOWN_LINES = 8
SHOWN_PLACES = 5
COMPARED_LINES = 1_000
COMPARED_WIDTH = 120
"""How much is looked through for a similar line; difflib is slow."""

REGION_MARKER = re.compile(r"^[^\w\n]*EVOLVE-BLOCK-(?:START|END)\b|# EVOLVE-BLOCK-(?:START|END)", re.MULTILINE)
"""What OpenEvolve takes for the mark of a region's start or end."""
NEAR_MARKER = re.compile(r"^[ \t]*(?:<{5}|>{5})", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement that was made."""

    search: str
    replace: str
    line: int
    """The first replaced line, counted from 1 in the source as it was."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A source with all edits of a reply in it."""

    source: str
    edits: tuple[Edit, ...]
    """In the order of the reply."""
    summary: str
    """Which lines were replaced by how many, in one line."""


@dataclass(frozen=True, slots=True)
class Place:
    """Lines `[start, end)` of the source, counted from 0, that one edit replaces."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"line {self.start + 1}" if self.end == self.start + 1 else f"lines {self.start + 1}-{self.end}"


def apply_edits(source: str, reply_text: str) -> Edited | Refusal:
    """The source with every edit of the reply, or what is wrong with them; never raises.

    Each SEARCH text must stand in exactly one place of `source` as it was before any edit: exactly, or, where
    it does not, apart from white space at the ends of lines. Edits may not overlap, nor reach out of the
    EVOLVE-BLOCK regions; a source without these is one region. Line endings of the source are kept.
    """
    pairs = parse_edits(reply_text)
    if isinstance(pairs, Refusal):
        return pairs
    if len(source) > MOST_CHARACTERS:
        return Refusal(f"the program has {len(source):,} characters, at most {MOST_CHARACTERS:,} are edited")
    text = _Text(source)
    regions = _regions(text.lines)
    if isinstance(regions, Refusal):
        return regions
    places: list[Place] = []
    faults: list[str] = []
    for number, (search, replace) in enumerate(pairs, 1):
        place = text.place_of(search)
        fault = place if isinstance(place, str) else _misplaced(place, regions, text.lines, replace)
        if fault is not None:
            faults.append(f"edit {number}: {fault}")
        elif isinstance(place, Place):
            places.append(place)
        if len(faults) == MOST_FAULTS:
            return Refusal("\n".join([*faults, "what comes after it was not looked at"]))
    faults = faults or _overlaps(places)
    return Refusal("\n".join(faults[:MOST_FAULTS])) if faults else _replaced(text, pairs, places)


def parse_edits(reply_text: str) -> list[tuple[str, str]] | Refusal:
    """(SEARCH, REPLACE) of every block in a reply, or what is wrong with its markers."""
    from openevolve.utils.code_utils import extract_diffs

    if len(reply_text) > MOST_CHARACTERS:
        return Refusal(
            f"the reply has {len(reply_text):,} characters, at most {MOST_CHARACTERS:,} are read: send short edits"
        )
    text = reply_text.replace("\r\n", "\n")
    try:
        pairs: list[tuple[str, str]] = extract_diffs(text)
    except ValueError:
        return Refusal(_marker_fault(text))
    if not pairs:
        near = NEAR_MARKER.search(text)
        found = f"; line {_line_of(text, near.start())} looks like one but is not" if near else ""
        return Refusal(f"no edit found: expected the lines `{'`, `'.join(MARKERS)}`, each alone on its line{found}")
    if len(pairs) > MOST_EDITS:
        return Refusal(f"the reply has {len(pairs)} edits, at most {MOST_EDITS} are taken: change fewer places")
    for number, (search, replace) in enumerate(pairs, 1):
        if not search.strip():
            return Refusal(
                f"edit {number}: its SEARCH text is empty; to insert, search for a line that is there and repeat it "
                "in REPLACE"
            )
        if NEAR_MARKER.search(search) or NEAR_MARKER.search(replace):
            return Refusal(
                f"edit {number}: a line in it looks like a marker but is not one of `{'`, `'.join(MARKERS)}`"
            )
        if REGION_MARKER.search(replace):
            return Refusal(f"edit {number}: its REPLACE text holds an EVOLVE-BLOCK marker; these stay as they are")
    return pairs


def has_edits(reply_text: str) -> bool:
    """Whether a reply means to hold edits: a line begins like a marker."""
    return NEAR_MARKER.search(reply_text) is not None


def within_regions(parent: str, program: str) -> str | Refusal:
    """A whole program with what lies outside its parent's EVOLVE-BLOCK regions put back as it was.

    Refused where regions were added or removed, for then nobody can say what belongs where.
    """
    from openevolve.utils.code_utils import enforce_evolve_blocks

    expected, found = (len(REGION_MARKER.findall(text)) for text in (parent, program))
    try:
        if expected == found:
            return str(enforce_evolve_blocks(parent, program))
    except ValueError:
        pass
    return Refusal(
        f"the program has {found} EVOLVE-BLOCK marker lines in its own order, expected the parent's {expected}: keep "
        "every such line, and all text outside the regions, as it was"
    )


def printable(text: str, limit: int) -> str:
    """The text in one line, nothing in it that a terminal obeys, at most `limit` characters."""
    line = " ".join(clean(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


class _Text:
    """A source as lines, and as two texts in which whole lines can be searched for."""

    def __init__(self, source: str) -> None:
        self.lines = list(io.StringIO(source, newline="\n"))
        """Each with its own ending; only a newline ends a line."""
        self.exact = "\n" + "\n".join(_bare(line) for line in self.lines) + "\n"
        self.loose = "\n" + "\n".join(line.rstrip() for line in self.lines) + "\n"

    @cached_property
    def numbers_of(self) -> dict[str, list[int]]:
        """Stripped line -> the numbers from 0 of the first lines that read so."""
        numbers: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            places = numbers.setdefault(line.strip(), [])
            if len(places) < 20:
                places.append(number)
        return numbers

    def place_of(self, search: str) -> Place | str:
        """The only place of the search text, or why there is none."""
        wanted = search.split("\n")
        trimmed = [line.rstrip() for line in wanted]
        starts = _occurrences(self.exact, wanted) or _occurrences(self.loose, trimmed)
        if len(starts) == 1:
            return Place(starts[0], starts[0] + len(wanted))
        begin = printable(search.strip(), 60)
        if starts:
            lines = ", ".join(str(start + 1) for start in starts[:SHOWN_PLACES])
            more = " and more" if len(starts) > SHOWN_PLACES else ""
            return (
                f"SEARCH text stands in several places, at lines {lines}{more}, must be exactly 1; it begins "
                f"`{begin}`. Add lines before or after it that make it unique"
            )
        return f"SEARCH text stands in 0 places, must be exactly 1; it begins `{begin}`. {_nearest(wanted, self)}"


def _occurrences(text: str, lines: Sequence[str]) -> list[int]:
    """Numbers from 0 of the lines where these lines stand in `text`; stops after a few."""
    needle = "\n" + "\n".join(lines) + "\n"
    starts: list[int] = []
    line, at, last = 0, text.find(needle), 0
    while at >= 0 and len(starts) <= SHOWN_PLACES:
        line += text.count("\n", last, at)
        starts.append(line)
        last, at = at, text.find(needle, at + 1)
    return starts


def _bare(line: str) -> str:
    return line.removesuffix("\n").removesuffix("\r")


def _ending(line: str) -> str:
    return line[len(_bare(line)) :]


def _nearest(wanted: Sequence[str], text: _Text) -> str:
    """A hint: the lines of the source that come nearest to the wanted ones, with their numbers."""
    lines = text.lines
    if wanted[0].lstrip().startswith(("```", "~~~")):
        return "Leave out the fence inside the block: SEARCH holds nothing but lines of the program"
    start = _best_alignment(wanted, text)
    if start is None:
        longest = max(wanted, key=len)
        similar = _most_similar(longest, lines[:COMPARED_LINES])
        start = None if similar is None else max(similar - wanted.index(longest), 0)
    if start is None:
        return "Nothing like it stands in the program: copy the lines from the program as it was shown"
    place = Place(start, min(start + len(wanted), len(lines)))
    real = lines[place.start : place.end]
    is_indentation = [line.split() for line in real] == [line.split() for line in wanted]
    what = "They differ only in white space" if is_indentation else f"Nearest to it: {place}"
    shown = [f"{place.start + 1 + number}: {_clipped(line)}" for number, line in enumerate(real[:SHOWN_LINES])]
    return f"{what}; the program has there\n" + "\n".join(shown)


def _most_similar(wanted: str, lines: Sequence[str]) -> int | None:
    """Which line reads most like the wanted one, None if none does by half.

    `difflib.get_close_matches` needs 1 s for 1,000 lines of two letters; here it is asked about the few lines
    that have the same letters.
    """
    matcher = difflib.SequenceMatcher(None, "", wanted.strip()[:COMPARED_WIDTH], autojunk=False)

    def alike(number: int, ratio: Callable[[], float]) -> float:
        matcher.set_seq1(lines[number].strip()[:COMPARED_WIDTH])
        return ratio()

    likely = heapq.nlargest(10, range(len(lines)), key=lambda number: alike(number, matcher.quick_ratio))
    best = max(likely, key=lambda number: alike(number, matcher.ratio), default=None)
    return best if best is not None and alike(best, matcher.ratio) >= 0.5 else None


def _best_alignment(wanted: Sequence[str], text: _Text) -> int | None:
    """Where the wanted lines would begin if as much text as possible of them were to stand; None: no line is there.

    A line that stands in several places says less about where.
    """
    weights: dict[int, float] = {}
    for offset, line in enumerate(wanted[:200]):
        bare = line.strip()
        numbers = text.numbers_of.get(bare, ()) if len(bare) > 3 else ()
        for number in numbers:
            start = max(number - offset, 0)
            weights[start] = weights.get(start, 0.0) + min(len(bare), 40) / len(numbers)
    return min(weights, key=lambda start: (-weights[start], start)) if weights else None


def _clipped(line: str) -> str:
    """A line as it is shown to the model: to be copied, so its white space stays."""
    return clean(line.rstrip()[:160])


def _regions(lines: Sequence[str]) -> list[Place] | Refusal:
    """Where lines may be changed."""
    from openevolve.utils.code_utils import parse_evolve_blocks

    text = "".join(lines)
    blocks = parse_evolve_blocks(text)
    marks = sum(1 for line in lines if REGION_MARKER.search(line))
    if 2 * len(blocks) != marks:
        return Refusal(
            f"the program's {marks} EVOLVE-BLOCK marker lines are nested or unmatched: no edit can be placed; "
            "send a whole program"
        )
    return [Place(start + 1, end) for start, end, _ in blocks] or [Place(0, len(lines))]


def _misplaced(place: Place, regions: Sequence[Place], lines: Sequence[str], replace: str) -> str | None:
    """Why an edit cannot be made at the place where its SEARCH text stands."""
    if any(region.start <= place.start and place.end <= region.end for region in regions):
        return _useless(place, lines, replace)
    allowed = ", ".join(str(region) for region in regions[:SHOWN_PLACES] if region.end > region.start) or "nothing"
    return f"SEARCH text stands at {place}, outside what may be changed ({allowed}): edit only between the markers"


def _useless(place: Place, lines: Sequence[str], replace: str) -> str | None:
    old = [line.rstrip() for line in lines[place.start : place.end]]
    if old != [line.rstrip() for line in replace.split("\n")]:
        return None
    return f"its REPLACE text is what stands at {place} already: it changes nothing"


def _overlaps(places: Sequence[Place]) -> list[str]:
    order = sorted(enumerate(places, 1), key=lambda item: item[1].start)
    return [
        f"edits {first} and {second} overlap: one changes {one}, the other {other}. Make them one edit"
        for (first, one), (second, other) in itertools.pairwise(order)
        if other.start < one.end
    ]


def _replaced(text: _Text, pairs: Sequence[tuple[str, str]], places: Sequence[Place]) -> Edited:
    lines = list(text.lines)
    said = []
    for place, (_, replace) in sorted(zip(places, pairs, strict=True), key=lambda item: -item[0].start):
        new = _with_endings(replace, lines, place)
        lines[place.start : place.end] = new
        said.append(f"{place} -> {len(new)}")
    edits = tuple(Edit(*pair, place.start + 1) for place, pair in zip(places, pairs, strict=True))
    count = f"{len(edits)} edit{'s' if len(edits) > 1 else ''}"
    return Edited("".join(lines), edits, f"{count}: {', '.join(reversed(said))} lines")


def _with_endings(replace: str, lines: Sequence[str], place: Place) -> list[str]:
    """The lines of a REPLACE text, ending as the replaced lines do; none for an empty text."""
    if not replace:
        return []
    neighbour = lines[place.start - 1] if place.start else "\n"
    ending = _ending(lines[place.start]) or _ending(neighbour)
    new = [line + ending for line in replace.split("\n")]
    new[-1] = _bare(new[-1]) + _ending(lines[place.end - 1])
    return new


def _marker_fault(text: str) -> str:
    """What is wrong with markers that are out of order."""
    expected, opened = 0, 0
    for number, line in enumerate(text.split("\n"), 1):
        marker = line.removesuffix("\r").strip(" \t")
        if marker not in MARKERS:
            continue
        if marker != MARKERS[expected]:
            return (
                f"line {number} of the reply is `{marker}` where `{MARKERS[expected]}` was expected: an edit has the "
                f"three lines `{'`, `'.join(MARKERS)}` in this order, and they stand nowhere else"
            )
        opened = number if expected == 0 else opened
        expected = (expected + 1) % 3
    return f"the edit that begins at line {opened} of the reply has no `{MARKERS[expected]}`: the reply ends inside it"


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1

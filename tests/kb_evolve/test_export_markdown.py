"""The Markdown summary: what it says, and that nothing in it becomes markup that should not."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from export_makers import kb, searched

from islands.candidate import Evaluated
from islands.run import Run
from islands.store import open_store
from kb_evolve.export.markdown import bundle_readme, summary
from kb_evolve.export.markup import block, code
from kb_evolve.standing import best_of

EVIL = [
    "```\n</details><script>alert(1)</script>",
    "````````\n# heading\n````````",
    "`` ` @everyone #1 https://evil.example [x](javascript:1)",
    "\u202egnp.exe \x1b[2J \u200b",
    "~~~\n<img src=x onerror=alert(1)>\n~~~",
    "\r```\r<b>",
]


@pytest.fixture(scope="module")
def found(memory_dir: Path) -> tuple[Run, Evaluated, Path]:
    db = memory_dir / "markdown.db"
    run = searched(db)
    with open_store(db, read_only=True) as store:
        elite = best_of(store, run.id)
    assert elite is not None
    return run, elite, db


def outside_code(text: str) -> str:
    """What a reader of CommonMark takes for prose: without fenced blocks and without code spans."""
    kept, fence = [], ""
    for line in re.split("\r\n|\n|\r", text):
        marks = re.match(r"`{3,}", line)
        if fence:
            if marks and len(marks[0]) >= len(fence) and not line.strip("` "):
                fence = ""
        elif marks and "`" not in line[len(marks[0]) :]:
            fence = marks[0]
        else:
            kept.append(re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert not fence, "a block is open at the end"
    return "\n".join(kept)


def test_the_summary_says_what_was_found_how_and_how_to_do_it_again(found: tuple[Run, Evaluated, Path]) -> None:
    _, elite, db = found
    text = kb("export", "night", "--db", db, "--format", "markdown").stdout
    low, high = elite.evaluation.speedup_ci or (0.0, 0.0)
    for word in ("row_variance", "replay", f"{low:.3g}, {high:.3g}", elite.candidate.id, elite.candidate.source_sha256):
        assert word in text
    assert f"```python\n{elite.candidate.source.rstrip()}\n```" in text
    assert "kb-evolve eval kernel.py --problem row_variance --backend cpp --precision fp32" in text


def test_it_goes_to_a_file_where_one_is_named(found: tuple[Run, Evaluated, Path], tmp_path: Path) -> None:
    run, elite, db = found
    result = kb("export", "night", "--db", db, "--format", "markdown", "--out", tmp_path / "new" / "summary.md")
    assert result.exit_code == 0
    assert (tmp_path / "new" / "summary.md").read_text() == summary(run, elite)


@pytest.mark.parametrize("evil", EVIL)
def test_no_text_of_a_candidate_becomes_markup(found: tuple[Run, Evaluated, Path], evil: str) -> None:
    run, elite, _ = found
    candidate = dataclasses.replace(
        elite.candidate, source=f'"""{evil}"""\n', rationale=evil, mutator=evil, id=evil, digests=None
    )
    evaluation = dataclasses.replace(elite.evaluation, device_name=evil, labels=(evil,), sandbox=evil)
    evil_run = dataclasses.replace(run, name=evil, problem_id=evil)
    texts = (
        summary(evil_run, Evaluated(candidate, evaluation)),
        bundle_readme(evil_run, [Evaluated(candidate, evaluation)], 0),
    )
    for text in texts:
        prose = outside_code(text)
        for word in ("script", "onerror", "everyone", "evil.example", "# heading", "</details>", "<b>"):
            assert word not in prose, prose
        assert not set("\x1b\u202e\u200b\r") & set(text)


@pytest.mark.parametrize("text", ["", " ", "`", "``", "a`b", "`a`", "a\nb", "a|b"])
def test_a_code_span_is_one_line_and_closed(text: str) -> None:
    span = code(text)
    assert "\n" not in span and outside_code(f"x {span} y") == "x  y"


def test_a_fence_is_longer_than_any_run_of_backticks_in_it() -> None:
    assert block("a ````` b").startswith("``````\n")
    assert block("plain").startswith("```\n")


@pytest.mark.parametrize("form", ["kernelbench", "bundle", "replies"])
def test_a_format_that_writes_files_needs_a_folder(found: tuple[Run, Evaluated, Path], form: str) -> None:
    result = kb("export", "night", "--db", found[2], "--format", form)
    assert result.exit_code == 2 and "needs --out DIR" in result.stderr


def test_numbers_of_kernelbench_are_for_its_layout_alone(found: tuple[Run, Evaluated, Path]) -> None:
    result = kb("export", "night", "--db", found[2], "--format", "markdown", "--level", "1")
    assert result.exit_code == 2 and "are for --format kernelbench" in result.stderr


@pytest.mark.parametrize("form", ["markdown", "bundle", "replies"])
def test_several_runs_are_for_kernelbenchs_layout_alone(found: tuple[Run, Evaluated, Path], form: str) -> None:
    result = kb("export", "night", "night", "--db", found[2], "--format", form, "--out", found[2].parent / "out")
    assert result.exit_code == 2 and "takes one run, 2 runs were given" in result.stderr

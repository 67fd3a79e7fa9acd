"""`kb-evolve run`: the search."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from typing import TYPE_CHECKING, Any

import click

from kb_evolve.commands.shared import emit_json, evaluated_json, json_option, judge_options, lineage_text
from kb_evolve.commands.tables import screen_width
from kb_evolve.live import candidates_text, duration_text, speedup_text, verdict_text

if TYPE_CHECKING:
    from kb_evolve.search import Outcome
    from kb_evolve.seeding.told import Seeded


@click.command(epilog="Example: kb-evolve run rmsnorm --evaluations 60 --minutes 5")
@click.argument("refs", nargs=-1, metavar="REF...")
@judge_options
@click.option("--db", metavar="FILE", help="Database to keep the run in: kb_evolve.db (default).")
@click.option("--run", metavar="NAME", help="Name of the run; the same name goes on with it.")
@click.option(
    "--evaluations",
    type=int,
    metavar="N",
    help="Stop after N programs were judged (100 if no limit is given).",
)
@click.option("--attempts", type=int, metavar="N", help="Stop after N proposals.")
@click.option("--minutes", type=float, metavar="M", help="Stop after M minutes, summed over resumed parts.")
@click.option("--islands", type=int, metavar="K", help="Populations that evolve side by side: 4 (default).")
@click.option("--seed", type=int, metavar="S", help="Seed of the search's choices: 0 (default).")
@click.option("--start", metavar="FILE", help="A correct first kernel, where the problem has no bundled one.")
@click.option(
    "--seeds",
    multiple=True,
    metavar="RUN|PATH",
    help="More first kernels: a run, a kernel or a folder of them, KernelBench's runs/, an OpenEvolve checkpoint, or "
    "similar (other problems of the database); repeatable.",
)
@click.option("--mutator", "mutators", multiple=True, metavar="NAME", help="Use only these; repeatable.")
@click.option("--model", multiple=True, metavar="NAME", help="Model as litellm names it, or mailbox; repeatable.")
@click.option("--api-base", metavar="URL", help="OpenAI-compatible server of the models.")
@click.option(
    "--price",
    multiple=True,
    metavar="NAME=IN,OUT",
    help="USD per million prompt and completion tokens of a model that litellm's table lacks; repeatable.",
)
@click.option("--max-usd", type=float, metavar="X", help="Most that models may cost; a hard cap.")
@click.option("--max-tokens", type=int, metavar="N", help="The same in tokens, for models without a known price.")
@click.option("--mailbox", metavar="DIR", help="Folder for questions to the model `mailbox`, and their answers.")
@click.option("--replay", metavar="FILE", help="Recorded replies that answer in place of the models.")
@click.option("--thinkers", type=int, metavar="N", help="Questions to models at once: 8 (default).")
@click.option("--in-order", is_flag=True, default=None, help="Tell results in ticket order: repeatable, slower.")
@click.option("--builders", type=int, metavar="N", help="Builds at once: 2 (default).")
@click.option("--allow-fast-math", is_flag=True, default=None, help="Let candidates use -ffast-math.")
@click.option(
    "--notify-command",
    metavar="COMMAND",
    help="Run this at each new best and at the end, a JSON message on its standard input; see docs/notifications.md.",
)
@click.option(
    "--notify-url",
    metavar="URL",
    envvar="KB_EVOLVE_NOTIFY_URL",
    help="Post the same message to this address (Slack and Discord take it); better set as KB_EVOLVE_NOTIFY_URL.",
)
@click.option(
    "--track",
    multiple=True,
    metavar="WHERE",
    help="Write curves to tensorboard:DIR or mlflow:URI as well; repeatable.",
)
@click.option("--config", metavar="FILE.toml", help="Configuration (docs/configuration.md); flags override it.")
@json_option
@click.option("--quiet", is_flag=True, help="Show no progress.")
def run(refs: tuple[str, ...], config: str | None, as_json: bool, quiet: bool, **flags: Any) -> None:
    """Search for a faster kernel for each REF.

    REF is a bundled problem (see `kb-evolve problems list`), a path to a .py file in KernelBench's format, or
    level1/19 with --kernelbench. The run is kept in the database: Ctrl-C or a kill loses only the work in
    flight, and the same command goes on where it stopped.
    """
    from kb_evolve.config import ConfigError, read_toml

    flags["mutators"], flags["model"] = flags["mutators"] or None, flags["model"] or None
    flags["seeds"], flags["track"] = flags["seeds"] or None, flags["track"] or None
    flags["settings"] = with_prices(config, flags.pop("price"))
    if config is not None and flags["db"] is None:
        flags["db"] = read_toml(config).get("run", {}).get("db")
    if len(refs) > 1 and flags["run"]:
        raise ConfigError(f"--run {flags['run']} names one run, but {len(refs)} problems were given: leave one out")
    outcomes = []
    for ref in refs or ("",):
        outcome = search_one(ref, config, flags, quiet)
        outcomes.append(outcome)
        if not as_json:
            click.echo(summary(outcome, flags["db"]))
        if outcome.stop == "interrupted":
            break
    if as_json:
        emit_json({"runs": [outcome_json(outcome) for outcome in outcomes]})
    if any(outcome.stop == "seed_failed" for outcome in outcomes):
        sys.exit(1)


def search_one(ref: str, config: str | None, options: dict[str, Any], quiet: bool) -> Outcome:
    """Runs one search with its display on stderr. ConfigError when neither flags nor file name a problem."""
    from kb_evolve.config import ConfigError
    from kb_evolve.live import open_display
    from kb_evolve.search import Search

    search = Search(ref, config=config, **options)
    for line in () if quiet else estimate_lines(search.config):
        click.echo(line, err=True)
    if not search.config.run.problem:
        raise ConfigError("no problem was named: give a REF (`kb-evolve problems list`) or [run] problem in --config")
    if quiet:
        search.warn = lambda text: click.echo(f"kb-evolve: {text}", err=True)
        return search.run()
    with open_display(sys.stderr) as display:
        search.show, search.warn = display, display.say
        return search.run()


def summary(outcome: Outcome, db: str | None) -> str:
    """What was found, how, and what can be done next."""
    parts = [f"\n{outcome.run.name}: {outcome.run.problem_id} on {outcome.run.device}, {outcome.reason}."]
    if outcome.best is None:
        parts.append("No correct kernel was found.")
    else:
        parts.append(_found(outcome))
    plural = "s" * (outcome.evaluations != 1)
    spent = f"{outcome.evaluations} evaluation{plural} in {duration_text(outcome.elapsed_s)}"
    parts.append(f"{spent}; {candidates_text(outcome.verdicts)}; attempts: {verdict_text(outcome.attempts) or 'none'}.")
    if outcome.seeded is not None:
        parts.append(seeded_text(outcome.seeded))
    if outcome.spent is not None:
        parts.append(spent_text(outcome.spent))
    parts.append(_next_commands(outcome, db))
    return "\n".join(parts)


def with_prices(config: str | None, given: tuple[str, ...]) -> dict[str, dict[str, Any]] | None:
    """The models' settings of the configuration file with prices of the command line; None where none were given."""
    from kb_evolve.config import ConfigError, read_toml

    if not given:
        return None
    settings = dict(read_toml(config).get("models", {}).get("settings", {})) if config else {}
    for entry in given:
        name, equals, prices = entry.rpartition("=")
        try:
            price_in, price_out = (float(price) / 1e6 for price in prices.split(","))
        except ValueError:
            equals = ""
        if not equals or not name:
            raise ConfigError(f"--price must be NAME=IN,OUT in USD per million tokens (openai/x=3,15), found {entry!r}")
        settings[name] = {**settings.get(name, {}), "price_in": price_in, "price_out": price_out}
    return settings


def estimate_lines(config: Any) -> list[str]:
    """What the models may cost, one line each; nothing where none is paid."""
    from kb_evolve.models import estimates, names_of

    if not names_of(config) or config.models.replay:
        return []
    return [f"kb-evolve: {estimate.sentence()}" for estimate in estimates(config)]


def spent_text(spent: dict[str, Any]) -> str:
    """What models cost in this run, resumed parts included."""
    if not spent["requests"]:
        return "Models: no paid requests."
    tokens = f"{spent['prompt_tokens']:,} prompt and {spent['completion_tokens']:,} completion tokens"
    money = f"${spent['cost_usd']:.4f}" if spent["is_priced"] else f"${spent['cost_usd']:.4f} and unknown prices"
    uncertain = f", ${spent['uncertain_usd']:.4f} of it uncertain" if spent.get("uncertain_usd") else ""
    parts = [f"Models: {spent['requests']} requests, {tokens}, {money}{uncertain}."]
    for kind in ("by_model", "by_operator"):
        shares = ", ".join(f"{name} ${one['cost_usd']:.4f}" for name, one in spent[kind].items() if name)
        parts.append(f"  {kind.replace('_', ' ')}: {shares or 'none'}")
    return "\n".join(parts)


def seeded_text(seeded: Seeded) -> str:
    """What became of the seeds, and each one that was left out."""
    judged = f": {verdict_text(seeded.verdicts)}" if seeded.verdicts else ""
    return "\n".join([f"Seeds: {seeded.taken} taken{judged}.", *(f"  left out: {text}" for text in seeded.left_out)])


def _found(outcome: Outcome) -> str:
    best, first = outcome.best, outcome.first
    assert best is not None
    lines = [
        f"Best: {best.candidate.id}, {speedup_text(best)} against {best.evaluation.baseline} "
        f"({best.evaluation.kernel_ms:.4g} ms; reference {best.evaluation.reference_ms:.4g} ms)."
    ]
    if first is not None and first.evaluation.speedup is not None:
        lines.append(f"The first kernel had {speedup_text(first)}.")
    lines += ["What was changed on the way:", lineage_text(outcome.lineage, screen_width())]
    return "\n".join(lines)


def _next_commands(outcome: Outcome, db: str | None) -> str:
    name = shlex.quote(outcome.run.name)
    at = f" --db {shlex.quote(db)}" if db else ""
    lines = [f"Database: {db or 'kb_evolve.db'}. Next:", f"  kb-evolve report {name}{at} --out report"]
    if outcome.best is not None:
        lines.append(f"  kb-evolve export {name}{at} --format kernelbench --out export")
        lines.append(f"  kb-evolve show {outcome.best.candidate.id}{at}")
    if outcome.attempts.get("open") and "mailbox" in outcome.run.config.get("models", {}).get("model", ()):
        lines.append(f"  kb-evolve ask {name}{at}")
    return "\n".join(lines)


def outcome_json(outcome: Outcome) -> dict[str, Any]:
    """The machine's version of `summary`."""
    name = outcome.run.name
    return {
        "run": name,
        "run_id": outcome.run.id,
        "problem": outcome.run.problem_id,
        "backend": outcome.run.backend,
        "device": outcome.run.device,
        "stop": outcome.stop,
        "reason": outcome.reason,
        "evaluations": outcome.evaluations,
        "attempts": outcome.attempts,
        "verdicts": outcome.verdicts,
        "elapsed_s": outcome.elapsed_s,
        "seeds": dataclasses.asdict(outcome.seeded) if outcome.seeded else None,
        "models": outcome.spent,
        "first": evaluated_json(outcome.first, name) if outcome.first else None,
        "best": evaluated_json(outcome.best, name) if outcome.best else None,
        "lineage": [evaluated_json(evaluated, name) for evaluated in outcome.lineage],
    }

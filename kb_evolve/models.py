"""Language models at work for one run: reached, paid, recorded; and the operators that ask them."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from islands.run import Run
from islands.store import Store
from islands.turns import EMBED
from kb_evolve.briefing import brief_of
from kb_evolve.config import Config, ConfigError, ModelsConfig
from kb_evolve.journal import StoreJournal, settle_lost
from kb_evolve.judging import read_kernel
from kb_evolve.rethink import PATIENT
from mutators.brief import Brief
from mutators.dialogue import Journal, Model, ModelError, Reply, Request
from mutators.embedding import Embeddings
from mutators.insights import Insights, InsightsConfig
from mutators.mailbox import NAME as MAILBOX
from mutators.mailbox import Mailbox
from mutators.proposal import Mutator, Usage
from mutators.replay import Key, Recorded, read_replies
from problems.problem import Problem

if TYPE_CHECKING:
    from mutators.ledger import Estimate, Ledger
    from mutators.llm import ModelSpec

OPERATORS = ("diff", "rewrite", "combine", "repair", "explain", "knobs")
"""Operators that ask a model during a search."""
BYTES_PER_TOKEN = 4


class Metered:
    """A model that remembers when its money ran out."""

    def __init__(self, name: str, model: Model) -> None:
        self.name, self._model = name, model
        self.refusal = ""

    def ask(self, request: Request) -> Reply:
        """As the model's; a refusal for want of budget is kept."""
        try:
            return self._model.ask(request)
        except ModelError as error:
            if error.kind == "budget":
                self.refusal = error.reason
            raise


@dataclass(frozen=True, slots=True)
class Models:
    """The models of a run."""

    metered: tuple[Metered, ...]
    operators: tuple[Mutator, ...]
    seeders: tuple[Mutator, ...]
    """What writes first kernels: from the problem alone, or by translation."""
    insights: Insights
    embeddings: Embeddings | None
    """What tells whether two programs mean the same; None where no model for it is named."""
    ledger: Ledger
    close: Callable[[], None]
    """Gives up what is in flight and ends the connections."""

    def paid_out(self) -> str:
        """Why no model may be asked any more, in words; empty while one may."""
        refusals = [one.refusal for one in self.metered]
        return f"no model may be asked any more: {refusals[-1]}" if refusals and all(refusals) else ""


def names_of(config: Config) -> tuple[str, ...]:
    """The models that a configuration names, once each, those of its OpenEvolve file included."""
    return tuple(dict.fromkeys((*config.models.model, *_openevolve(config.models))))


def split_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names of mutators in two: those that need no model, and operators that ask one."""
    return [name for name in names if name not in OPERATORS], [name for name in names if name in OPERATORS]


def check_models(config: Config) -> None:
    """ConfigError or ProposalError for settings that cannot be used; opens and asks nothing."""
    models = config.models
    names = names_of(config)
    unknown = sorted(set(models.operators) - set(OPERATORS))
    if unknown:
        raise ConfigError(f"unknown operator {unknown[0]!r} in [models] operators; possible: {', '.join(OPERATORS)}")
    strangers = sorted(set(models.settings) - {*names, models.embedding})
    if strangers:
        raise ConfigError(
            f"[models.settings] names {strangers[0]!r}, which no --model does; models: {', '.join(names)}"
        )
    if models.embedding and (not names or models.embedding == MAILBOX):
        raise ConfigError(
            f"[models] embedding names a model that gives vectors of what models write, found {models.embedding!r} "
            f"with the models {', '.join(names) or 'none'}; name one that writes too, with --model NAME"
        )
    if not 0 < models.embedding_threshold <= 1:
        raise ConfigError(f"embedding_threshold must lie above 0 and at most at 1, found {models.embedding_threshold}")
    if not names and (models.replay or models.mailbox):
        raise ConfigError("recorded replies and mailboxes stand in for models: name them too, with --model NAME")
    if bool(models.translate) != bool(models.translate_from):
        raise ConfigError("[models] translate (a kernel file) and translate_from (its backend) go together")
    for path in (models.replay, models.templates, models.translate, models.openevolve):
        if path and not Path(path).exists():
            raise ConfigError(f"{path} does not exist; check the path")
    specs = specs_of(config)
    if not specs:
        return
    from mutators.reach import why_unreachable

    for spec in specs:
        if reason := why_unreachable(spec):
            raise ConfigError(reason)


def specs_of(config: Config) -> list[ModelSpec]:
    """How each model that is reached over HTTP is to be asked. ConfigError for a setting that does not exist."""
    import dacite

    from mutators.llm import ModelSpec

    found = []
    openevolve = _openevolve(config.models)
    embedder = (config.models.embedding,) if config.models.embedding else ()
    for name in dict.fromkeys((*names_of(config), *embedder)):
        if name == MAILBOX or config.models.replay:
            continue
        values = {**_common(config.models), **openevolve.get(name, {}), **config.models.settings.get(name, {})}
        try:
            found.append(dacite.from_dict(ModelSpec, {**values, "name": name}, dacite.Config(strict=True)))
        except (dacite.DaciteError, TypeError) as error:
            raise ConfigError(f"[models.settings.{name!r}] has a {error}") from error
    return found


def _common(models: ModelsConfig) -> dict[str, Any]:
    return {
        "api_base": models.api_base,
        "max_tokens": models.reply_tokens,
        "temperature": models.temperature,
        "timeout_s": models.reply_timeout_s,
    }


def _openevolve(models: ModelsConfig) -> dict[str, dict[str, Any]]:
    if not models.openevolve:
        return {}
    from mutators.openevolve_llm import openevolve_specs

    specs = openevolve_specs(Path(models.openevolve))
    return {
        spec["name"]: {key: value for key, value in spec.items() if key not in ("name", "weight")} for spec in specs
    }


def open_models(config: Config, store: Store, run: Run, problem: Problem) -> Models | None:
    """The models of a run with what they have cost so far; None where none is named."""
    names = names_of(config)
    if not names:
        return None
    from mutators.ledger import Expense, Ledger

    settle_lost(store, run.id, keep=PATIENT)
    spent = [Expense(Usage(**one.usage), one.operator, one.island) for one in store.spent(run.id)]
    ledger = Ledger(config.budget.max_usd, config.budget.max_tokens, spent)
    journal = StoreJournal(store, run.id)
    closing = contextlib.ExitStack()
    replies = read_replies(Path(config.models.replay)) if config.models.replay else {}
    metered, embedder = _reach(config, names, ledger, journal, closing, replies)
    brief = brief_of(run, problem, config)
    prompts, insights = _prompts(config, run, brief), Insights(brief, InsightsConfig(config.models.insights))
    operators, seeders = _operators(config, metered, prompts, insights), _seeders(config, metered, prompts)
    embeddings = None
    if embedder is not None:
        recorded = [turn.text for turn in store.turns(run.id, operator=EMBED) if turn.text is not None]
        recorded += [reply.text for (_, _, name), reply in replies.items() if name == config.models.embedding]
        embeddings = Embeddings(embedder, config.models.embedding, recorded)
    return Models(metered, operators, seeders, insights, embeddings, ledger, closing.close)


def _reach(
    config: Config,
    names: Sequence[str],
    ledger: Ledger,
    journal: Journal,
    closing: contextlib.ExitStack,
    replies: Mapping[Key, Reply],
) -> tuple[tuple[Metered, ...], Model | None]:
    """The models that write, and the one that embeds."""
    models = config.models
    if models.replay:
        embedder = Recorded(models.embedding, replies, journal) if models.embedding else None
        return tuple(Metered(name, Recorded(name, replies, journal)) for name in names), embedder
    found: dict[str, Model] = {}
    if MAILBOX in names:
        box = Mailbox(journal, _made_folder(models.mailbox) if models.mailbox else None)
        found[MAILBOX] = box
        closing.callback(box.close)
    specs = specs_of(config)
    if specs:
        from mutators.llm import Client

        client = Client(specs, ledger, journal)
        found |= {spec.name: client for spec in specs}
        closing.callback(client.close)
    return tuple(Metered(name, found[name]) for name in names), found.get(models.embedding)


def _made_folder(name: str) -> Path:
    """The mailbox's folder, made; ConfigError where it cannot be, which no question would ever get an answer from."""
    try:
        Path(name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the mailbox {name} cannot be used: {error.strerror} ({error.filename}); name another folder (--mailbox)"
        ) from error
    return Path(name)


def _prompts(config: Config, run: Run, brief: Brief) -> Any:
    secret = bytes.fromhex(run.config.get("prompt_secret") or secrets.token_hex(16))  # runs of old have none
    if config.models.templates:
        from mutators.openevolve_prompts import OpenEvolvePrompts

        return OpenEvolvePrompts(brief, secret, config.models.prompt_tokens, Path(config.models.templates))
    from mutators.prompt import PromptBuilder

    return PromptBuilder(brief, secret, config.models.prompt_tokens)


def _operators(config: Config, metered: Sequence[Metered], prompts: Any, insights: Insights) -> tuple[Mutator, ...]:
    from mutators.knobs import Knobs, KnobsOptions
    from mutators.operators import ModelOperator, OperatorOptions

    wanted = split_names(config.mutators.use)[1] or config.models.operators
    options = OperatorOptions(max_tokens=config.models.reply_tokens, temperature=config.models.temperature)
    made: list[Mutator] = []
    for model in metered:
        for name in wanted:
            if name == "knobs":
                knobs = KnobsOptions(temperature=config.models.temperature or KnobsOptions().temperature)
                made.append(Knobs(model, model.name, knobs))
            else:
                made.append(ModelOperator(name, model, model.name, prompts, options, insights=insights.recall))
    return tuple(made)


def _seeders(config: Config, metered: Sequence[Metered], prompts: Any) -> tuple[Mutator, ...]:
    from mutators.operators import ModelOperator, OperatorOptions

    models = config.models
    options = OperatorOptions(models.reply_tokens, models.temperature)
    if not models.translate:
        return tuple(ModelOperator("seed", model, model.name, prompts, options) for model in metered)
    source = read_kernel(Path(models.translate))
    options = dataclasses.replace(options, source=source, source_backend=models.translate_from)
    return tuple(ModelOperator("translate", model, model.name, prompts, options) for model in metered)


def estimates(config: Config) -> list[Estimate]:
    """What the models of a run may cost, before any is asked: its evaluations' worth of requests, shared evenly."""
    from mutators.ledger import estimate, given_prices, listed_prices

    names = names_of(config)
    specs = [spec for spec in specs_of(config) if spec.name in names]
    if not specs:
        return []
    count = config.budget.attempts or config.budget.evaluations or 100
    found = []
    for spec in specs:
        prices = given_prices(spec.price_in, spec.price_out)
        prices = prices if prices.is_known else listed_prices(spec.name)
        requests = max(1, -(-count // len(specs)))
        prompt_bytes = config.models.prompt_tokens * BYTES_PER_TOKEN
        found.append(estimate(spec.name, prices, requests, prompt_bytes, spec.max_tokens))
    return found

"""The configuration: one TOML file, the command line's flags over it, frozen dataclasses out of it."""

from __future__ import annotations

import dataclasses
import difflib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from islands.population import PopulationConfig

Layer = dict[str, dict[str, Any]]
"""Values that were given, by section and key: a TOML file's, a command line's or a stored run's."""

DEFAULT_EVALUATIONS = 100
"""The budget of a run for which none was given."""


class ConfigError(Exception):
    """A configuration that cannot be used; says which key, what was found and what is possible."""


@dataclass(frozen=True, slots=True)
class RunConfig:
    """What is searched for, where, and where it is kept."""

    problem: str = ""
    """A bundled name, a path to a .py file, or `level1/19` with `kernelbench`."""
    name: str = ""
    """The run's name in the database (`--run`); empty: problem, backend, device and precision."""
    db: str = "kb_evolve.db"
    backend: str = "cpp"
    """cpp, cuda or triton."""
    device: str = ""
    """cpu, cuda (the first GPU) or cuda:N; empty: cpu for cpp, else the first GPU, else cpu."""
    arch: str = ""
    """What GPU code is compiled for (`sm_90`); empty: what the device is, or sm_90 where there is none."""
    precision: str = "fp32"
    seed: int = 0
    """Seeds every choice of the search; the judge's inputs are always drawn afresh."""
    start: str = ""
    """Path of a correct first kernel; empty: the problem's bundled seed."""
    seeds: tuple[str, ...] = ()
    """More first candidates: runs of the database, files or folders of kernels, or `similar`; see docs/seeding.md."""
    seeds_each: int = 8
    """Kernels taken from each of `seeds` at most."""
    kernelbench: str = ""
    """Path of a KernelBench checkout or data set, for `level1/19`."""
    in_order: bool = False
    """Tell results in the order of their tickets: the same seed, replies and evaluations then give the same run,
    however many are in flight, at the price of waiting for the slowest."""
    lag: int = 8
    """In order, a ticket is asked for before the one that came so many before it must be told."""
    thinkers: int = 8
    """Proposals made at once, while waiting on a model."""
    patience_attempts: int = 50
    """The run ends after this many attempts in a row that gave no new program."""


@dataclass(frozen=True, slots=True)
class BudgetConfig:
    """When a run ends; the first limit that is reached counts. None: no limit."""

    evaluations: int | None = None
    """Programs judged, the seed included."""
    attempts: int | None = None
    """Proposals asked for, also those that gave nothing new."""
    minutes: float | None = None
    """Wall time of the run, summed over its resumed parts."""
    max_usd: float | None = None
    """Most that models may cost, requests in flight counted at their worst; a hard cap."""
    max_tokens: int | None = None
    """The same in tokens, for models whose price is not known."""


@dataclass(frozen=True, slots=True)
class MutatorsConfig:
    """Which mutators propose, how they are chosen, and their own options."""

    use: tuple[str, ...] = ()
    """Names of the mutators (`--mutator`); empty: every one that needs no model, and with models their operators."""
    policy: str = "bandit"
    """`bandit` by what each one's proposals gained, `uniform`, or `fixed` by `weights`."""
    weights: dict[str, float] = field(default_factory=dict)
    """Relative shares, for `fixed`, by arm: a mutator's name, `diff@MODEL`, or a pattern such as `*@MODEL`."""
    usd_per_device_hour: float = 2.5
    """What an hour of the device is worth beside what models cost, for `bandit`."""
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Each mutator's own options, by its name."""


@dataclass(frozen=True, slots=True)
class ModelsConfig:
    """Which language models propose, and how they are reached."""

    model: tuple[str, ...] = ()
    """Names as litellm knows them (`openai/gpt-5`), or `mailbox` for a person or an agent."""
    api_base: str = ""
    """Address of an OpenAI-compatible server, for models without one of their own in `settings`."""
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Per model: the fields of mutators.llm.ModelSpec, such as `api_key_env`, `price_in`, `temperature`."""
    operators: tuple[str, ...] = ("diff", "rewrite", "combine", "repair", "explain")
    translate: str = ""
    """A kernel in another backend's form: first kernels are then translations of it, where there is none to start."""
    translate_from: str = ""
    """The backend of `translate`: cpp, cuda or triton."""
    prompt_tokens: int = 24_000
    """What a prompt may be long; what is left out first, mutators/prompt.py says."""
    reply_tokens: int = 16_000
    """Most tokens of a reply, reasoning included."""
    temperature: float | None = None
    reply_timeout_s: float = 600.0
    templates: str = ""
    """Folder of OpenEvolve prompt templates to use in place of ours."""
    openevolve: str = ""
    """An OpenEvolve configuration whose `llm` block names the models."""
    embedding: str = ""
    """A model for embeddings (`openai/text-embedding-3-small`, any server by `settings`): a model's program that means
    nearly the same as one of its island is then a duplicate. Empty: programs count as the same by their tokens only."""
    embedding_threshold: float = 0.99
    """From this cosine on, up to 1, two programs mean the same."""
    insights: bool = True
    """Lessons of earlier attempts enter prompts while an island does not improve."""
    mailbox: str = ""
    """Folder in which questions to `mailbox` are written as files too."""
    replay: str = ""
    """File of recorded replies (`kb-evolve export RUN --format replies`) that answer in place of all models."""


@dataclass(frozen=True, slots=True)
class JudgeConfig:
    """How candidates are built and judged."""

    sandbox: str = "auto"
    """`auto` refuses to run below level S2; `none` runs without."""
    builders: int = 2
    """Builds at once."""
    timeout_s: float = 30.0
    """Longest time of one forward call [s]. A candidate is waited for 20 times that in all."""
    build_timeout_s: float = 240.0
    memory_bytes: int = 8 << 30
    allow_fast_math: bool = False


@dataclass(frozen=True, slots=True)
class NotifyConfig:
    """What is told of a new best and of the end; see docs/notifications.md."""

    command: str = ""
    """Program and arguments (`--notify-command`), run without a shell, the message as JSON on its standard input."""
    url: str = ""
    """Address (`--notify-url`) that the message is posted to as JSON."""


@dataclass(frozen=True, slots=True)
class TrackingConfig:
    """Where the run's curves are drawn besides our own report; see docs/notifications.md."""

    track: tuple[str, ...] = ()
    """`tensorboard:DIR` or `mlflow:URI`."""


@dataclass(frozen=True, slots=True)
class Config:
    """Everything that decides what a run does."""

    run: RunConfig = RunConfig()
    budget: BudgetConfig = BudgetConfig()
    population: PopulationConfig = field(default_factory=PopulationConfig)
    mutators: MutatorsConfig = MutatorsConfig()
    models: ModelsConfig = ModelsConfig()
    judge: JudgeConfig = JudgeConfig()
    notify: NotifyConfig = NotifyConfig()
    tracking: TrackingConfig = TrackingConfig()

    def to_layer(self) -> Layer:
        """Plain JSON values, as stored with the run; sections that may hold secrets lack."""
        return {section: values for section, values in dataclasses.asdict(self).items() if section not in UNSTORED}


UNSTORED = ("notify", "tracking")
"""Sections that no database holds: their addresses and commands may hold secrets, and change nothing of the search."""


SECTIONS: dict[str, Any] = {
    "run": RunConfig,
    "budget": BudgetConfig,
    "population": PopulationConfig,
    "mutators": MutatorsConfig,
    "models": ModelsConfig,
    "judge": JudgeConfig,
    "notify": NotifyConfig,
    "tracking": TrackingConfig,
}


ALIASES = {"run": "name", "mutators": "use", "notify_command": "command", "notify_url": "url"}
"""Flags whose name says more than the key does outside its section."""


def _keys(section: str) -> tuple[str, ...]:
    return tuple(entry.name for entry in dataclasses.fields(SECTIONS[section]))


REBINNED = ("axes", "edges")
"""Keys of the population that a run may change: its history is told again at each start, into the new cells."""


FIXED = {
    "run": ("backend", "device", "arch", "precision", "seed", "seeds", "seeds_each"),
    "population": tuple(key for key in _keys("population") if key not in REBINNED),
    "mutators": _keys("mutators"),
    "judge": ("allow_fast_math",),
}
"""Keys by section that a run keeps for good: with other values it would be another run."""


ONE_NAME = {"cuda": "cuda:0"}
"""Devices that have two names."""


def read_toml(path: str | Path) -> Layer:
    """The values of a configuration file; ConfigError for a file, section or key that is not ours."""
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"the configuration {path} cannot be read: {error.strerror}; check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"the configuration {path} is not valid TOML: {error}") from error
    check_names(document, where=str(path))
    return document


def check_names(layer: Mapping[str, Any], *, where: str) -> None:
    """ConfigError when a section or key of `layer` does not exist; names the nearest that does."""
    for section, values in layer.items():
        if section not in SECTIONS:
            raise ConfigError(f"{where}: there is no section [{section}]; {_nearest(section, SECTIONS)}")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{where}: {section} must be a section ([{section}] and keys), found {values!r}")
        for key in values:
            if key not in _keys(section):
                raise ConfigError(f"{where}: [{section}] has no key {key!r}; {_nearest(key, _keys(section))}")


def flags_layer(flags: Mapping[str, Any], *, where: str = "the arguments") -> Layer:
    """The layer of flat names (`evaluations=60`); None means not given.

    `run` stands for [run] name and `mutators` for [mutators] use.
    """
    homes = {key: section for section in SECTIONS for key in _keys(section)}
    layer: Layer = {}
    for flag, value in flags.items():
        key = ALIASES.get(flag, flag)
        if key not in homes:
            raise ConfigError(f"{where}: there is no setting {flag!r}; {_nearest(flag, homes)}")
        if value is not None:
            layer.setdefault(homes[key], {})[key] = value
    return layer


def merge(*layers: Layer) -> Layer:
    """All values; of two for one key, the later layer's."""
    merged: Layer = {}
    for layer in layers:
        for section, values in layer.items():
            merged[section] = {**merged.get(section, {}), **values}
    return merged


def resolve(*layers: Layer) -> Config:
    """The configuration that the layers give, later ones over earlier ones; ConfigError for wrong values."""
    import dacite

    layer = merge(*layers)
    check_names(layer, where="the configuration")
    try:
        config = dacite.from_dict(Config, layer, dacite.Config(strict=True, cast=[tuple]))
    except dacite.DaciteError as error:
        raise ConfigError(f"the configuration has a {error}") from error
    except ValueError as error:
        raise ConfigError(f"the configuration cannot be used: {error}") from error
    _check_values(config)
    config = dataclasses.replace(config, run=_with_device(config.run))
    if all(value is None for value in dataclasses.astuple(config.budget)):
        config = dataclasses.replace(config, budget=BudgetConfig(evaluations=DEFAULT_EVALUATIONS))
    return config


def check_resumable(stored: Layer, given: Layer, *, name: str) -> None:
    """ConfigError when `given` would change what the stored run `name` is."""
    for section, keys in FIXED.items():
        for key, value in given.get(section, {}).items():
            before = stored[section].get(key)
            value = ONE_NAME.get(value, value) if key == "device" else value
            if key in keys and _plain(before) != _plain(value):
                raise ConfigError(
                    f"run {name!r} was started with {key} = {before!r} and cannot go on with {value!r}: "
                    f"give the stored value, or start another run with --run NAME"
                )


def _check_values(config: Config) -> None:
    positive = {
        "lag": config.run.lag,
        "seeds_each": config.run.seeds_each,
        "max_usd": config.budget.max_usd,
        "max_tokens": config.budget.max_tokens,
        "prompt_tokens": config.models.prompt_tokens,
        "reply_tokens": config.models.reply_tokens,
        "embedding_threshold": config.models.embedding_threshold,
        "evaluations": config.budget.evaluations,
        "attempts": config.budget.attempts,
        "minutes": config.budget.minutes,
        "builders": config.judge.builders,
        "timeout_s": config.judge.timeout_s,
        "build_timeout_s": config.judge.build_timeout_s,
        "memory_bytes": config.judge.memory_bytes,
        "patience_attempts": config.run.patience_attempts,
        "thinkers": config.run.thinkers,
    }
    for name, value in positive.items():
        if value is not None and not value > 0:
            raise ConfigError(f"{name} must be above 0, found {value!r}")
    for name, weight in config.mutators.weights.items():
        if not weight >= 0:
            raise ConfigError(f"the weight of mutator {name!r} must be 0 or more, found {weight!r}")
    from problems.problem import PRECISIONS

    if config.run.precision not in PRECISIONS:
        raise ConfigError(f"unknown precision {config.run.precision!r}; possible: {', '.join(PRECISIONS)}")


def _with_device(run: RunConfig) -> RunConfig:
    """`cuda` as cuda:0, and cpu where only that is possible; which GPU there is, kb_evolve/judging.py finds out."""
    device = ONE_NAME.get(run.device, run.device) or ("cpu" if run.backend == "cpp" else "")
    return dataclasses.replace(run, device=device)


def _plain(value: Any) -> Any:
    """Tuples as lists, as JSON gives them back."""
    return list(value) if isinstance(value, tuple) else value


def _nearest(name: str, names: Iterable[str]) -> str:
    known = sorted(names)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"possible: {', '.join(known)}"

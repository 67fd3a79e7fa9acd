"""OpenEvolve's models here, and ours there: its `llm:` block as plain settings, and our Model as its LLMInterface.

OpenEvolve takes a misspelt key for nothing and a key's literal for a key; both are refused here.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mutators.dialogue import Message, Model, Request, Role
from mutators.proposal import ProposalError

if TYPE_CHECKING:
    from openevolve.config import LLMModelConfig
    from openevolve.llm.base import LLMInterface

OPENAI_BASE = "https://api.openai.com/v1"
"""OpenEvolve's default, which is also litellm's."""
OPENAI_KEY_ENV = "OPENAI_API_KEY"
"""Where OpenEvolve looks for a key that the file does not name."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")
REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
NO_SAMPLING = re.compile(r"(?:o[134]|gpt-5|gpt-oss-(?:120b|20b))", re.IGNORECASE)
"""Names that OpenEvolve sends neither temperature nor top_p to."""
PARAMETERS = {"top_p": "top_p", "reasoning_effort": "reasoning_effort", "random_seed": "seed"}
"""OpenEvolve's key -> the provider's parameter."""
OURS = ("init_client", "_manual_queue_dir")
"""Fields that only code can set."""
UNUSED_WHILE_WAITING = ("timeout", "retries", "retry_delay")
"""Keyword arguments of a single call that our client decides itself."""


def openevolve_specs(path: Path) -> list[dict[str, Any]]:
    """The models of an OpenEvolve configuration that may be drawn, each with the fields of ModelSpec that the file sets
    (`name`, `api_base`, `api_key_env`, `max_tokens`, `temperature`, `timeout_s`, `retries`, `parameters`) and `weight`.

    Names become `openai/NAME`: OpenEvolve knows only servers that speak OpenAI's protocol. Not read, because it means
    nothing here: retry_delay, system_message (a prompt's), evaluator_models, limits of command line tools.
    ProposalError for a file that cannot be read, a key that OpenEvolve does not have, a literal key, or settings that
    cannot work.
    """
    document = _read(path)
    _check_names(document, path)
    shared = document.get("llm") or {}
    found: dict[str, dict[str, Any]] = {}
    for entry in _entries(shared, path):
        spec = _spec({**shared, **{key: value for key, value in entry.items() if value is not None}}, path)
        name = spec["name"]
        if name in found and {**found[name], "weight": 0} != {**spec, "weight": 0}:
            raise ProposalError(f"{path}: model {name} stands there twice with different settings; keep one")
        spec["weight"] += found.get(name, {}).get("weight", 0.0)
        found[name] = spec
    specs = [spec for spec in found.values() if spec["weight"] > 0]
    if not specs:
        raise ProposalError(f"{path}: llm names no model with a weight above 0; set llm.primary_model or llm.models")
    return specs


def _read(path: Path) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ProposalError(f"the OpenEvolve configuration {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:  # its text would quote the line, which may hold a key
        mark = getattr(error, "problem_mark", None)
        place = f" in line {mark.line + 1}" if mark else ""
        raise ProposalError(f"the OpenEvolve configuration {path} is not valid YAML{place}") from None
    if not isinstance(document, dict):
        raise ProposalError(f"the OpenEvolve configuration {path} must hold keys such as `llm:`")
    return document


def _check_names(document: dict[str, Any], path: Path) -> None:
    """ProposalError for a key that no class of OpenEvolve's configuration has."""
    from openevolve import config

    sections = {
        "llm": config.LLMConfig,
        "prompt": config.PromptConfig,
        "database": config.DatabaseConfig,
        "evaluator": config.EvaluatorConfig,
        "evolution_trace": config.EvolutionTraceConfig,
    }
    _check_section("", document, config.Config, path)
    for name, section in sections.items():
        _check_section(f"{name}.", document.get(name) or {}, section, path)
    for name in ("models", "evaluator_models"):
        entries = (document.get("llm") or {}).get(name) or []
        if not isinstance(entries, list):
            raise ProposalError(f"{path}: llm.{name} must be a list of models")
        for index, entry in enumerate(entries):
            _check_section(f"llm.{name}[{index}].", entry, config.LLMModelConfig, path)


def _check_section(where: str, values: Any, section: type, path: Path) -> None:
    known = [name for name in section.__dataclass_fields__ if name not in OURS]  # type: ignore[attr-defined]
    if not isinstance(values, dict):
        raise ProposalError(f"{path}: {where.rstrip('.')} must hold keys, found {type(values).__name__}")
    for key in values:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ProposalError(f"{path}: OpenEvolve has no key {where}{key}{hint}")


def _entries(shared: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    """The models named, as OpenEvolve gathers them: the list, then the two old keys."""
    entries = list(shared.get("models") or [])
    for name, weight in (("primary_model", 1.0), ("secondary_model", 0.2)):
        if shared.get(name):
            given = shared.get(f"{name}_weight")
            entries.append({"name": shared[name], "weight": weight if given is None else given})
    if any(not isinstance(entry.get("name"), str) or not entry["name"] for entry in entries):
        raise ProposalError(f"{path}: every entry of llm.models needs a name")
    return entries


def _spec(entry: dict[str, Any], path: Path) -> dict[str, Any]:
    """One model's settings under ModelSpec's names; those that the file leaves open are left out."""
    name = entry["name"]
    where = f"{path}: model {name}"
    _check_provider(entry, where)
    spec: dict[str, Any] = {"name": our_name(name), **_address(entry, where)}
    is_plain = not NO_SAMPLING.match(name)
    numbers = {"max_tokens": ("max_tokens", int), "timeout": ("timeout_s", float), "retries": ("retries", int)}
    if is_plain:
        numbers["temperature"] = ("temperature", float)
    for key, (ours, kind) in numbers.items():
        if entry.get(key) is not None:
            spec[ours] = kind(_number(entry[key], f"{where}: {key}"))
    parameters = {ours: entry[key] for key, ours in PARAMETERS.items() if entry.get(key) is not None}
    if not is_plain:
        parameters.pop("top_p", None)
    if parameters:
        spec["parameters"] = parameters
    weight = entry.get("weight")
    return {**spec, "weight": _number(1.0 if weight is None else weight, f"{where}: weight")}


def our_name(name: str) -> str:
    """How litellm is told that a model of OpenEvolve's is behind OpenAI's protocol."""
    return f"openai/{name}"


def _check_provider(entry: dict[str, Any], where: str) -> None:
    if entry.get("manual_mode"):
        raise ProposalError(f"{where}: manual_mode is `--model mailbox` here; name that instead")
    if entry.get("provider") not in (None, "openai"):
        raise ProposalError(
            f"{where}: provider {entry['provider']!r} starts a command line tool, which is not done here; name a model "
            "of litellm's with --model, or let the tool be the model through `--model mailbox`"
        )


def _address(entry: dict[str, Any], where: str) -> dict[str, str]:
    """`api_base` and `api_key_env`; the key itself is never looked at, nor shown."""
    base = entry.get("api_base")
    if base is not None and not isinstance(base, str):
        raise ProposalError(f"{where}: api_base must be an address such as http://127.0.0.1:8080/v1")
    is_own = not base or base.rstrip("/") == OPENAI_BASE
    if base and urlsplit(base).username is not None:
        raise ProposalError(f"{where}: api_base holds credentials; give them through api_key: ${{NAME_OF_A_VARIABLE}}")
    key = entry.get("api_key")
    if key is None:
        is_open = is_own or urlsplit(base or "").hostname in LOOPBACK
        found = {} if is_open else {"api_key_env": OPENAI_KEY_ENV}
    elif reference := REFERENCE.fullmatch(str(key)):
        found = {"api_key_env": reference[1]}
    else:
        raise ProposalError(
            f"{where}: api_key holds a literal; put the key into an environment variable and write "
            "api_key: ${NAME_OF_THE_VARIABLE}, or leave api_key out for a server that needs none"
        )
    return found if is_own else {"api_base": str(base), **found}


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ProposalError(f"{where} must be a number not below 0, found {value!r}")
    return float(value)


def client_maker(models: Mapping[str, Model]) -> Callable[[LLMModelConfig], LLMInterface]:
    """What `LLMModelConfig.init_client` takes: gives OpenEvolve's engine the model of the same name.

    `models` by the names in OpenEvolve's configuration. The engine's workers are forked with it, so a model must be
    usable in a forked process.
    """

    def make(settings: LLMModelConfig) -> LLMInterface:
        if settings.name not in models:
            raise ProposalError(f"no model {settings.name!r} was given to OpenEvolve; there are {', '.join(models)}")
        return make_interface(models[settings.name], settings)

    return make


def make_interface(model: Model, settings: LLMModelConfig) -> LLMInterface:
    """Our model behind OpenEvolve's LLMInterface, with that configuration's sampling settings as defaults.

    Requests name the model as openevolve_specs does. They are numbered by a digest of what is asked and of how often it
    was asked before: the engine has no tickets, and a run that is started again finds the replies that were recorded.
    """
    from openevolve.llm.base import LLMInterface

    class Interface(LLMInterface):
        """`last_usage` is what OpenEvolve's ensemble reads right after a reply."""

        def __init__(self) -> None:
            self.last_usage: dict[str, Any] | None = None
            self._asked: Counter[str] = Counter()

        async def generate(self, prompt: str, **kwargs: Any) -> str:
            return await self.generate_with_context(
                settings.system_message or "", [{"role": "user", "content": prompt}], **kwargs
            )

        async def generate_with_context(
            self, system_message: str, messages: list[dict[str, str]], **kwargs: Any
        ) -> str:
            request = self._request(system_message, messages, kwargs)
            reply = await asyncio.to_thread(model.ask, request)
            usage = reply.usage
            self.last_usage = {
                "prompt_tokens": usage.prompt_tokens,
                "completion_tokens": usage.completion_tokens,
                "total_tokens": usage.prompt_tokens + usage.completion_tokens,
                "model": settings.name,
            }
            return reply.text

        def _request(self, system_message: str, messages: list[dict[str, str]], given: dict[str, Any]) -> Request:
            said = tuple(_message(one) for one in messages)
            said = (Message("system", system_message), *said) if system_message else said
            digest = hashlib.sha256(json.dumps([settings.name, system_message, messages, given]).encode()).hexdigest()
            number = int(hashlib.sha256(f"{digest}:{self._asked[digest]}".encode()).hexdigest()[:12], 16)
            self._asked[digest] += 1
            return Request(number, 0, "openevolve", our_name(settings.name), said, **_sampling(settings, given))

    return Interface()


def _message(one: dict[str, str]) -> Message:
    roles: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}
    if one.get("role") not in roles:
        raise ProposalError(f"a message's role must be one of {', '.join(roles)}, found {one.get('role')!r}")
    return Message(roles[one["role"]], one.get("content") or "")


def _sampling(settings: LLMModelConfig, given: dict[str, Any]) -> dict[str, Any]:
    """`max_tokens`, `temperature` and `parameters` of a request: the call's own before the configuration's."""
    values = {key: value for key, value in given.items() if key not in UNUSED_WHILE_WAITING}
    found: dict[str, Any] = {}
    for key in ("max_tokens", "temperature"):
        value = values.pop(key, getattr(settings, key))
        if value is not None:
            found[key] = value
    defaults = {ours: getattr(settings, key) for key, ours in PARAMETERS.items()}
    parameters = {key: value for key, value in {**defaults, **values}.items() if value is not None}
    return {**found, "parameters": parameters}

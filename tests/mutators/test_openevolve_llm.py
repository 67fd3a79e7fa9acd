"""OpenEvolve's models here, and ours under OpenEvolve's engine."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from mutators.dialogue import Message, ModelError, Reply, Request
from mutators.openevolve_llm import client_maker, make_interface, openevolve_specs
from mutators.proposal import ProposalError, Usage

LLM = """
llm:
  api_base: http://127.0.0.1:8080/v1
  temperature: 0.6
  top_p: 0.9
  max_tokens: 9000
  timeout: 120
  retries: 2
  retry_delay: 7
  random_seed: 3
  models:
    - name: small
      weight: 0.75
      temperature: 0.1
    - name: gpt-5-mini
      weight: 0.25
      api_base: https://openrouter.ai/api/v1
      api_key: ${ROUTER_KEY}
      reasoning_effort: high
"""


@pytest.fixture
def written(tmp_path):
    """`written(yaml)`: the file."""

    def write(text: str) -> Path:
        path = tmp_path / "config.yaml"
        path.write_text(textwrap.dedent(text))
        return path

    return write


def test_the_models_of_a_configuration_are_read_with_shared_and_own_settings(written):
    shared = {"max_tokens": 9000, "timeout_s": 120.0, "retries": 2}
    assert openevolve_specs(written(LLM)) == [
        {"name": "openai/small", "api_base": "http://127.0.0.1:8080/v1", "temperature": 0.1, "weight": 0.75,
         "parameters": {"top_p": 0.9, "seed": 3}, **shared},
        {"name": "openai/gpt-5-mini", "api_base": "https://openrouter.ai/api/v1", "api_key_env": "ROUTER_KEY",
         "weight": 0.25, "parameters": {"reasoning_effort": "high", "seed": 3}, **shared},
    ]  # fmt: skip


def test_what_openevolve_itself_makes_of_the_file_agrees(written, monkeypatch):
    from openevolve.config import load_config

    monkeypatch.setenv("ROUTER_KEY", "x")
    path = written(LLM)
    for theirs, ours in zip(load_config(path).llm.models, openevolve_specs(path), strict=True):
        assert ours["name"] == f"openai/{theirs.name}"
        assert (ours["api_base"], ours["weight"]) == (theirs.api_base, theirs.weight)
        for key, name in (("max_tokens", "max_tokens"), ("timeout_s", "timeout"), ("retries", "retries")):
            assert ours[key] == getattr(theirs, name)
        assert ours.get("temperature", theirs.temperature) == theirs.temperature
        assert ours["parameters"]["seed"] == theirs.random_seed


def test_specs_make_model_specs(written):
    from mutators.llm import ModelSpec

    for spec in openevolve_specs(written(LLM)):
        spec.pop("weight")
        assert ModelSpec(**spec).name.startswith("openai/")


def test_the_old_keys_name_models_with_their_weights(written):
    specs = openevolve_specs(written("llm: {primary_model: a, secondary_model: b, secondary_model_weight: 0.5}"))
    assert specs == [{"name": "openai/a", "weight": 1.0}, {"name": "openai/b", "weight": 0.5}]


def test_a_remote_server_without_a_named_key_gets_the_variable_that_openevolve_uses(written):
    (spec,) = openevolve_specs(written("llm: {api_base: 'https://example.org/v1', primary_model: a}"))
    assert spec["api_key_env"] == "OPENAI_API_KEY"
    (spec,) = openevolve_specs(written("llm: {api_base: 'https://api.openai.com/v1', primary_model: a}"))
    assert "api_base" not in spec and "api_key_env" not in spec


def test_a_model_listed_twice_is_one_with_both_weights_and_weight_zero_is_left_out(written):
    text = "llm: {models: [{name: a, weight: 1}, {name: b, weight: 0}, {name: a, weight: 2}]}"
    assert openevolve_specs(written(text)) == [{"name": "openai/a", "weight": 3.0}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("llm: {primary_modle: a}", r"no key llm.primary_modle; did you mean 'primary_model'\?"),
        (
            "llm: {models: [{name: a, temprature: 1}]}",
            r"no key llm.models\[0\].temprature; did you mean 'temperature'\?",
        ),
        ("max_iteration: 3\nllm: {primary_model: a}", "no key max_iteration; did you mean 'max_iterations'"),
        ("prompt: {template_dirs: x}\nllm: {primary_model: a}", "no key prompt.template_dirs; did you mean"),
        ("llm: {models: [{name: a, init_client: x}]}", r"no key llm.models\[0\].init_client"),
        ("llm: {models: [{weight: 1}]}", "every entry of llm.models needs a name"),
        ("llm: {models: a}", "llm.models must be a list"),
        ("llm: 3", "llm must hold keys, found int"),
        ("llm: {}", "names no model with a weight above 0"),
        ("{}", "names no model with a weight above 0"),
        ("- 1", "must hold keys such as `llm:`"),
        ("llm: {primary_model: a, timeout: soon}", "timeout must be a number not below 0, found 'soon'"),
        ("llm: {models: [{name: a, weight: -1}]}", "weight must be a number not below 0"),
        ("llm: {models: [{name: a, weight: .nan}]}", "weight must be a number not below 0"),
        ("llm: {models: [{name: a}, {name: a, retries: 1}]}", "stands there twice with different settings"),
        ("llm: {primary_model: a, provider: claude_code}", "starts a command line tool"),
        ("llm: {primary_model: a, manual_mode: true}", "`--model mailbox`"),
    ],
)
def test_what_cannot_work_is_refused_with_the_place(written, text, message):
    with pytest.raises(ProposalError, match=message):
        openevolve_specs(written(text))


@pytest.mark.parametrize(
    "text",
    [
        "llm: {primary_model: a, api_key: sk-SECRET123}",
        "llm: {models: [{name: a, api_key: sk-SECRET123}]}",
        "llm: {primary_model: a, api_key: 'sk-SECRET123-${HOME}'}",
        "llm: {primary_model: a, api_base: 'https://me:SECRET123@example.org/v1'}",
        "llm: {primary_model: a, api_key: [sk-SECRET123}",
    ],
)
def test_a_literal_key_is_refused_and_never_shown(written, text):
    with pytest.raises(ProposalError, match=r"\$\{NAME_OF|not valid YAML") as caught:
        openevolve_specs(written(text))
    assert "SECRET123" not in str(caught.value) and caught.value.__cause__ is None


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ProposalError, match=r"none.yaml cannot be read"):
        openevolve_specs(tmp_path / "none.yaml")


class Answering:
    """A model that gives each request's number of messages and its text back."""

    name = "answering"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    def ask(self, request: Request) -> Reply:
        self.asked.append(request)
        if request.messages[-1].content == "fail":
            raise ModelError("budget", "the cap is reached")
        usage = Usage("answering", prompt_tokens=11, completion_tokens=len(self.asked))
        return Reply(f"{len(request.messages)}: {request.messages[-1].content}", usage=usage)


def settings(**changes):
    from openevolve.config import LLMModelConfig

    return LLMModelConfig(**{"name": "small", "temperature": 0.4, "max_tokens": 500, "random_seed": 3, **changes})


def test_openevolves_ensemble_asks_our_model_and_reads_what_it_used():
    from openevolve.llm.ensemble import LLMEnsemble

    model = Answering()
    ensemble = LLMEnsemble([settings(init_client=client_maker({"small": model}))])
    ensemble.reseed(5)
    talk = ensemble.generate_with_context("be brief", [{"role": "user", "content": "hello"}], top_p=0.5, timeout=3)
    assert asyncio.run(talk) == "2: hello"
    assert ensemble.last_usage == {"prompt_tokens": 11, "completion_tokens": 1, "total_tokens": 12, "model": "small"}
    (request,) = model.asked
    assert request.messages == (Message("system", "be brief"), Message("user", "hello"))
    assert (request.model, request.operator, request.max_tokens) == ("openai/small", "openevolve", 500)
    assert request.temperature == 0.4 and request.parameters["top_p"] == 0.5
    assert request.parameters["seed"] != 3 and "timeout" not in request.parameters


def test_plain_prompts_take_the_configured_system_message():
    interface = make_interface(Answering(), settings(system_message="be brief"))
    assert asyncio.run(interface.generate("hello")) == "2: hello"
    assert asyncio.run(make_interface(Answering(), settings()).generate("hello")) == "1: hello"


def test_a_run_that_starts_again_asks_under_the_same_numbers_and_repeated_questions_differ():
    def numbers() -> list[int]:
        model = Answering()
        interface = make_interface(model, settings())
        for text in ("a", "a", "b"):
            asyncio.run(interface.generate(text))
        return [request.number for request in model.asked]

    assert numbers() == numbers()
    assert len(set(numbers())) == 3 and max(numbers()) < 2**63


def test_failures_of_the_model_reach_openevolve():
    with pytest.raises(ModelError, match="the cap is reached"):
        asyncio.run(make_interface(Answering(), settings()).generate("fail"))


def test_a_model_that_was_not_given_and_a_role_that_is_none_are_errors():
    with pytest.raises(ProposalError, match="no model 'small' was given"):
        client_maker({"other": Answering()})(settings())
    with pytest.raises(ProposalError, match="role must be one of"):
        asyncio.run(make_interface(Answering(), settings()).generate_with_context("", [{"role": "tool"}]))


ENGINE = """
import asyncio, sys
from openevolve import OpenEvolve
from openevolve.config import Config, LLMModelConfig
from mutators.dialogue import Reply
from mutators.openevolve_llm import client_maker

class Counting:
    name = "counting"
    def ask(self, request):
        assert request.operator == "openevolve" and request.messages[0].role == "system"
        return Reply("<<<<<<< SEARCH\\nX = 1\\n=======\\nX = 2\\n>>>>>>> REPLACE")

config = Config()
config.max_iterations = 2
maker = client_maker({"m": Counting()})
config.llm.models = config.llm.evaluator_models = [LLMModelConfig(name="m", init_client=maker)]
config.database.num_islands = 1
config.evaluator.parallel_evaluations = 1
config.evaluator.cascade_evaluation = False
best = asyncio.run(OpenEvolve("start.py", "judge.py", config, output_dir="out").run(iterations=2))
print("BEST", best.code.strip())
"""


def test_openevolves_own_engine_runs_on_our_model(tmp_path):
    (tmp_path / "start.py").write_text("X = 1\n")
    (tmp_path / "judge.py").write_text(
        "def evaluate(path):\n    return {'combined_score': float(open(path).read()[4])}\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", ENGINE], cwd=tmp_path, env={"PYTHONPATH": root, "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "BEST X = 2" in done.stdout, done.stderr[-3000:]

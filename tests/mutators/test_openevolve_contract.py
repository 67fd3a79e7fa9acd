"""What mutators/openevolve_*.py rely on in OpenEvolve; a new version that changes it fails here first."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect

import pytest

config = pytest.importorskip("openevolve.config")


def parameters(function) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_version_is_one_that_was_read():
    assert importlib.metadata.version("openevolve").startswith("0.4.")


def test_llm_interface_has_the_two_methods_that_we_implement():
    from openevolve.llm.base import LLMInterface

    assert LLMInterface.__abstractmethods__ == {"generate", "generate_with_context"}
    assert parameters(LLMInterface.generate) == ["self", "prompt", "kwargs"]
    assert parameters(LLMInterface.generate_with_context) == ["self", "system_message", "messages", "kwargs"]
    assert all(inspect.iscoroutinefunction(getattr(LLMInterface, name)) for name in LLMInterface.__abstractmethods__)


def test_a_models_settings_have_the_fields_that_we_read():
    fields = {field.name for field in dataclasses.fields(config.LLMModelConfig)}
    assert fields >= {
        *("name", "api_base", "api_key", "provider", "init_client", "weight", "system_message", "temperature", "top_p"),
        *("max_tokens", "timeout", "retries", "retry_delay", "random_seed", "reasoning_effort", "manual_mode"),
    }
    assert {field.name for field in dataclasses.fields(config.LLMConfig)} >= fields | {
        *("models", "evaluator_models", "primary_model", "primary_model_weight", "secondary_model"),
        "secondary_model_weight",
    }
    sections = {field.name for field in dataclasses.fields(config.Config)}
    assert sections >= {"llm", "prompt", "database", "evaluator", "evolution_trace"}


def test_a_misspelt_key_is_still_accepted_silently(tmp_path):
    """Why openevolve_specs checks names itself."""
    path = tmp_path / "config.yaml"
    path.write_text("llm: {primary_model: a, temprature: 0.1}")
    assert config.load_config(path).llm.models[0].temperature == config.LLMConfig().temperature


def test_init_client_makes_the_model_and_its_usage_is_read_afterwards():
    from openevolve.llm import ensemble

    made = object()
    settings = config.LLMModelConfig(name="a", init_client=lambda given: (made, given))
    assert ensemble._create_model(settings) == (made, settings)
    assert 'getattr(model, "last_usage", None)' in inspect.getsource(ensemble.LLMEnsemble.generate_with_context)


def test_the_sampler_takes_and_calls_what_we_give_and_override():
    from openevolve.prompt.sampler import PromptSampler

    assert set(parameters(PromptSampler.build_prompt)) >= {
        *("current_program", "parent_program", "program_metrics", "previous_programs", "top_programs", "inspirations"),
        *("language", "evolution_round", "diff_based_evolution", "template_key", "program_artifacts", "kwargs"),
        "feature_dimensions",
    }
    source = inspect.getsource(PromptSampler.build_prompt)
    for name in ("_identify_improvement_areas", "_format_evolution_history", "_render_artifacts"):
        assert f"self.{name}(" in source
    order = ["self", "previous_programs", "top_programs", "inspirations"]
    assert parameters(PromptSampler._format_evolution_history)[:4] == order
    fields = {field.name for field in dataclasses.fields(config.PromptConfig)}
    assert fields >= {"template_dir", "use_template_stochasticity"}


def test_the_template_manager_holds_texts_that_we_know_and_a_folder_goes_before_them(tmp_path):
    from openevolve.prompt.templates import TemplateManager

    from mutators.openevolve_prompts import PLACEHOLDERS

    (tmp_path / "top_program.txt").write_text("mine")
    manager = TemplateManager(str(tmp_path))
    ours_alone = {
        f"{operator}_user" for operator in ("diff", "rewrite", "combine", "repair", "explain", "translate", "seed")
    }
    assert PLACEHOLDERS.keys() - manager.templates.keys() == ours_alone - {"diff_user"}
    assert manager.get_template("top_program") == "mine" and "{current_program}" in manager.get_template("diff_user")
    assert {
        "no_specific_guidance",
        "fitness_improved",
        "fitness_declined",
        "fitness_stable",
    } <= manager.fragments.keys()
    assert {"artifact_title", "attempt_unknown_changes"} <= manager.fragments.keys()


def test_the_stock_sampler_still_has_the_fault_that_ours_mends():
    from openevolve.prompt.sampler import PromptSampler

    sampler = PromptSampler(config.PromptConfig())
    elite = {"id": "1", "code": "x", "metrics": {"speedup": 0.97}}
    text = sampler.build_prompt(current_program="x", inspirations=[elite])["user"]
    assert "[Fragment formatting error" in text and "High-Performer" in text

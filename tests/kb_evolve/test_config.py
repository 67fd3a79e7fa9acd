"""One TOML file and flags become one configuration; what is not ours is refused with the nearest name."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from islands.features import AXES
from islands.policies import PARENTS, TOPOLOGIES
from islands.population import PopulationConfig
from kb_evolve.config import (
    DEFAULT_EVALUATIONS,
    SECTIONS,
    ConfigError,
    check_resumable,
    flags_layer,
    read_toml,
    resolve,
)

CONFIGS = Path(__file__).resolve().parents[2] / "experiments" / "configs"


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_unknown_key_names_the_file_the_section_and_the_nearest_key(tmp_path: Path) -> None:
    path = write(tmp_path / "night.toml", "[budget]\nevaluation = 3\n")
    with pytest.raises(ConfigError) as caught:
        read_toml(path)
    message = str(caught.value)
    assert "night.toml" in message and "[budget]" in message and "'evaluations'" in message


def test_an_unknown_section_names_the_nearest_section(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"\[budgets\].*'budget'"):
        read_toml(write(tmp_path / "c.toml", "[budgets]\nevaluations = 3\n"))


def test_text_that_is_not_toml_and_a_missing_file_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(write(tmp_path / "c.toml", "[run\n"))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path / "none.toml")


def test_flags_override_the_file_key_by_key(tmp_path: Path) -> None:
    path = write(tmp_path / "c.toml", "[budget]\nevaluations = 3\nminutes = 2\n[population]\nislands = 7\n")
    config = resolve(read_toml(path), flags_layer({"evaluations": 9, "seed": None}))
    assert (config.budget.evaluations, config.budget.minutes) == (9, 2)
    assert config.population.islands == 7


def test_the_flag_run_is_the_key_name() -> None:
    assert resolve(flags_layer({"run": "night"})).run.name == "night"


def test_an_unknown_option_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="'minutes'"):
        flags_layer({"minuts": 3})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("budget", "evaluations", "many"),
        ("budget", "evaluations", 0),
        ("budget", "minutes", -1.0),
        ("run", "precision", "fp8"),
        ("run", "seed", 1.5),
        ("population", "islands", 0),
        ("judge", "builders", 0),
        ("mutators", "weights", {"tune": -1.0}),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_its_name(section: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve({section: {key: value}})
    assert key in str(caught.value) or "tune" in str(caught.value)


def test_without_any_limit_a_run_gets_a_budget_and_with_one_it_gets_no_other() -> None:
    assert resolve().budget.evaluations == DEFAULT_EVALUATIONS
    assert resolve({"budget": {"minutes": 1}}).budget.evaluations is None


def test_a_stored_configuration_comes_back_the_same_through_json() -> None:
    config = resolve({"population": {"islands": 2, "axes": ["size"]}, "mutators": {"weights": {"tune": 2}}})
    assert resolve(json.loads(json.dumps(config.to_layer()))) == config


def test_resuming_with_another_seed_is_refused_and_with_more_evaluations_is_not() -> None:
    stored = resolve().to_layer()
    check_resumable(stored, {"budget": {"evaluations": 500}, "run": {"seed": 0}}, name="night")
    with pytest.raises(ConfigError, match=r"'night'.*seed = 0.*--run"):
        check_resumable(stored, {"run": {"seed": 1}}, name="night")
    with pytest.raises(ConfigError, match="islands"):
        check_resumable(stored, {"population": {"islands": 9}}, name="night")


def test_resuming_with_a_list_that_was_stored_as_a_tuple_is_no_change() -> None:
    use = ["tune", "swap"]
    check_resumable(resolve({"mutators": {"use": use}}).to_layer(), {"mutators": {"use": use}}, name="n")


def test_a_run_may_go_on_with_other_axes_but_with_no_other_policies() -> None:
    stored = resolve({"population": {"axes": ["size"]}}).to_layer()
    check_resumable(stored, {"population": {"axes": ["size", "memory"], "edges": {"size": [9]}}}, name="night")
    with pytest.raises(ConfigError, match=r"started with topology = 'ring' and cannot go on with 'star'"):
        check_resumable(stored, {"population": {"topology": "star"}}, name="night")


def test_weights_of_parent_policies_may_be_whole_numbers() -> None:
    config = resolve({"population": {"parents": {"rank": 1, "curious": 0.5}}}).population
    assert config.parents == {"rank": 1, "curious": 0.5}


def test_no_key_stands_in_two_sections_so_that_a_flag_means_one_thing() -> None:
    counts = Counter(field.name for cls in SECTIONS.values() for field in dataclasses.fields(cls))
    assert [name for name, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.toml")), ids=lambda path: path.stem)
def test_the_configurations_that_we_ship_are_valid(path: Path) -> None:
    resolve(read_toml(path))


def test_the_page_on_the_population_shows_the_defaults_and_every_name() -> None:
    page = (CONFIGS.parents[1] / "docs" / "population.md").read_text(encoding="utf-8")
    default = PopulationConfig()
    shown: dict[str, Any] = {}
    for block in re.findall(r"```toml\n(.*?)```", page, re.DOTALL):
        layer = tomllib.loads(block)
        resolve(layer)
        shown |= layer["population"]
    assert {key: value for key, value in shown.items() if key != "edges"} == {
        "axes": list(default.axes),
        **{key: getattr(default, key) for key in ("parents", "topology", "migration_every", "migrants", "reset_after")},
    }
    assert [name for name in (*AXES, *PARENTS, *TOPOLOGIES) if f"`{name}`" not in page] == []

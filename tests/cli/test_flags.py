# SPDX-License-Identifier: Apache-2.0
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym._config.overrides import parse_overrides
from nemo_gym.cli.commands import GROUPS
from nemo_gym.cli.flags import UsageError, to_overrides

START = GROUPS["env"]["start"]


def values(*tokens: str) -> dict:
    return parse_overrides(to_overrides(START, list(tokens))).values


@given(st.text(alphabet=st.characters(blacklist_categories=("Cs", "Cc")), min_size=1))
def test_any_text_survives_as_the_value_of_a_flag(text):
    assert values("--model", text) == {"policy_model_name": text}


def test_flags_and_overrides_mix_and_the_last_wins():
    assert values("--model", "a", "+policy_model_name=b") == {"policy_model_name": "b"}
    assert values("+policy_model_name=b", "-m", "a") == {"policy_model_name": "a"}


def test_configs_come_before_named_components_and_raw_paths():
    tokens = ["+config_paths=[c.yaml,d.yaml]", "--model-type", "openai_model", "--config", "a, b.yaml"]
    assert values(*tokens)["config_paths"] == [
        "a, b.yaml",
        "responses_api_models/openai_model/configs/openai_model.yaml",
        "c.yaml",
        "d.yaml",
    ]


def test_a_search_dir_is_looked_in_first(monkeypatch, tmp_path):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", "/old")
    folder = tmp_path / "resources_servers" / "mine" / "configs"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").touch()
    assert values("--search-dir", str(tmp_path), "--resources-server", "mine")["config_paths"] == [
        "resources_servers/mine/configs/mine.yaml"
    ]
    assert os.environ["NEMO_GYM_EXTRA_ROOTS"] == f"{tmp_path}{os.pathsep}/old"


def test_a_component_that_is_nowhere_names_where_it_was_looked_for():
    with pytest.raises(UsageError, match="looked in") as caught:
        values("--resources-server", "nope")
    assert "resources_servers/nope/configs/nope.yaml" in str(caught.value)

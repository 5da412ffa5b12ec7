# SPDX-License-Identifier: Apache-2.0
"""The block `token_id_capture`, and the sinks and sources that it stands for."""

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf
from pydantic import ValidationError

from nemo_gym.errors import ConfigError
from nemo_gym.token_id_capture import (
    TokenCaptureStore,
    TokenEntry,
    TokenIdCaptureConfig,
    TokenSink,
    TokenSource,
    install_token_source,
    open_token_delivery,
    open_token_sink,
    open_token_source,
)
from nemo_gym.token_id_capture.config import token_id_capture_enabled_for_agent
from nemo_gym.token_id_capture.store import make_token_store


class WriteOnlySink:
    """A sink of a user's own, found by its `module:Class`."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    async def put(self, entry: TokenEntry) -> None: ...

    async def mark_incomplete(self, rollout_id: str, model_call_id: str = "") -> None: ...

    async def close(self) -> None: ...


OWN = f"{__name__}:WriteOnlySink"


def test_capture_is_off_by_default_and_opens_nothing():
    config = TokenIdCaptureConfig.from_global_config({"policy_model": {}, "model_call_capture_dir": "/captures"})
    assert (open_token_delivery(config), open_token_sink(config), open_token_source(config)) == (None, None, None)


def test_the_block_has_the_documented_defaults(tmp_path: Path):
    config = TokenIdCaptureConfig.from_global_config({"token_id_capture": {"enabled": True, "dir": str(tmp_path)}})
    assert (config.all_agents, config.sink, config.sink_kwargs) == (False, None, {})
    assert (config.rebuild_response, config.max_mask_fraction, config.mask_fraction_min_samples) == (True, None, 50)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(ValidationError, match="enabeld"):
        TokenIdCaptureConfig.from_global_config({"token_id_capture": {"enabeld": True}})


def test_rebuilding_responses_needs_somewhere_to_write():
    with pytest.raises(ValidationError, match="neither `dir` nor `sink`"):
        TokenIdCaptureConfig(enabled=True)
    with pytest.raises(ValidationError, match="absolute path"):
        TokenIdCaptureConfig(enabled=True, dir=Path("tokens"))


def test_capture_without_a_place_waits_for_a_sink_to_be_installed():
    config = TokenIdCaptureConfig(enabled=True, rebuild_response=False)
    delivery = open_token_delivery(config)
    assert delivery is not None
    assert not delivery.has_sink()
    assert open_token_source(config) is None


def test_the_folder_of_model_calls_also_takes_tokens(tmp_path: Path):
    given: dict[str, Any] = {"model_call_capture_dir": str(tmp_path), "token_id_capture": {"enabled": True}}
    assert TokenIdCaptureConfig.from_global_config(given).dir == tmp_path
    given["token_id_capture"]["dir"] = str(tmp_path / "tokens")
    assert TokenIdCaptureConfig.from_global_config(OmegaConf.create(given)).dir == tmp_path / "tokens"


def test_the_block_is_read_from_an_omegaconf_config(tmp_path: Path):
    config = OmegaConf.create({"where": str(tmp_path), "token_id_capture": {"enabled": True, "dir": "${where}"}})
    assert TokenIdCaptureConfig.from_global_config(config).dir == tmp_path


def test_the_file_store_is_both_ends(tmp_path: Path):
    config = TokenIdCaptureConfig(enabled=True, dir=tmp_path)
    for opened, protocol in ((open_token_sink(config), TokenSink), (open_token_source(config), TokenSource)):
        assert isinstance(opened, protocol)
        assert isinstance(opened, TokenCaptureStore)
        assert opened.dir == tmp_path


def test_a_sink_of_ones_own_is_loaded_by_name_with_its_arguments():
    sink = open_token_sink(TokenIdCaptureConfig(enabled=True, sink=OWN, sink_kwargs={"name": "mine"}))
    assert isinstance(sink, WriteOnlySink)
    assert sink.name == "mine"


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ("no_colon", "module.path:ClassName"),
        ("no.such.module:X", "cannot be loaded"),
        ("json:Nope", "cannot be loaded"),
        ("json:JSONEncoder", "lacks one of put, mark_incomplete, close"),
    ],
)
def test_a_sink_that_cannot_be_used_is_named(sink: str, message: str):
    with pytest.raises(ConfigError, match=message) as caught:
        open_token_sink(TokenIdCaptureConfig(enabled=True, sink=sink))
    assert repr(sink) in str(caught.value)


def test_a_sink_that_cannot_be_read_is_its_owners_to_read(caplog: pytest.LogCaptureFixture):
    assert open_token_source(TokenIdCaptureConfig(enabled=True, sink=OWN)) is None
    assert "Token ids are not put into result rows" in caplog.text


def test_a_sink_that_cannot_be_read_cannot_rebuild_responses():
    with pytest.raises(ConfigError, match="freeze, drop, close"):
        open_token_source(TokenIdCaptureConfig(enabled=True, sink=OWN, rebuild_response=True))


def test_an_installed_source_goes_before_the_config(tmp_path: Path):
    config = TokenIdCaptureConfig(enabled=True, sink=OWN, rebuild_response=True)
    source = TokenCaptureStore(tmp_path)
    install_token_source(source)
    try:
        assert open_token_source(config) is source
        assert open_token_source(TokenIdCaptureConfig()) is None
    finally:
        install_token_source(None)


@pytest.mark.parametrize(
    ("block", "asks", "captured"),
    [
        ({"enabled": True, "all_agents": True}, False, True),
        ({"enabled": True}, True, True),
        ({"enabled": True}, False, False),
        ({"enabled": False, "all_agents": True}, True, False),
        (None, True, False),
    ],
)
def test_an_agent_is_captured_with_all_others_or_because_it_asks(block, asks, captured):
    agent = {"responses_api_agents": {"simple_agent": {"token_id_capture": asks}}}
    config = {"token_id_capture": block and {**block, "dir": "/tokens"}, "mine": agent}
    assert token_id_capture_enabled_for_agent(config, "mine") is captured
    assert token_id_capture_enabled_for_agent(OmegaConf.create(config), "mine") is captured


def test_the_file_store_is_made_only_if_tokens_go_there(tmp_path):
    store = make_token_store(TokenIdCaptureConfig(enabled=True, dir=tmp_path))
    assert isinstance(store, TokenCaptureStore)
    assert make_token_store(TokenIdCaptureConfig(enabled=False, dir=tmp_path)) is None
    assert make_token_store(TokenIdCaptureConfig(enabled=True, sink=OWN, dir=tmp_path)) is None
    assert make_token_store(TokenIdCaptureConfig(enabled=True, rebuild_response=False)) is None

# SPDX-License-Identifier: Apache-2.0
"""A token sink and a token source that others wrote take part in a real collection of a model that returns tokens."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nemo_gym import rollout_collection
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.testing import running
from nemo_gym.token_id_capture import install_token_source
from resources_servers.example_single_tool_call.app import ExampleSingleToolCallResourcesServer
from responses_api_agents.simple_agent.app import SimpleAgent
from responses_api_models.vllm_model.app import VLLMModel
from tests.contract.servers.token_ledger import Ledger, LedgerSink, LedgerSource, LedgerStore
from tests.support.fake_openai import FakeOpenAI, chat, tool_call

AGENT = {
    "resources_server": {"type": "resources_servers", "name": "weather"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}
MODEL = {"api_key": "k", "model": "m", "return_token_id_information": True, "uses_reasoning_parser": True}
ASKED = {"prompt_token_ids": [1, 2], "generation_token_ids": [3, 4], "generation_log_probs": [-0.5, -0.25]}
ANSWERED = {"prompt_token_ids": [1, 2, 3, 4, 5], "generation_token_ids": [6], "generation_log_probs": [-0.125]}


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    monkeypatch.setattr(Ledger, "by_name", {})
    return Ledger.named("blue")


def capture(sink: type, **settings: Any) -> dict[str, Any]:
    kwargs = {"ledger": "blue", **settings.pop("kwargs", {})}
    block = {"enabled": True, "all_agents": True, "sink": f"{sink.__module__}:{sink.__qualname__}", **settings}
    return {"token_id_capture": {**block, "sink_kwargs": kwargs}}


async def collect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any]) -> dict[str, Any]:
    """Collect one rollout of two turns, the first of which calls a tool, and return its row."""
    source = tmp_path / "tasks.jsonl"
    task = {"responses_create_params": {"input": "How cold is it in Rome?"}, "agent_ref": {"name": "agent"}}
    source.write_text(json.dumps(task) + "\n")
    calls = [tool_call("get_weather", '{"city": "Rome"}')]
    script = (chat(tool_calls=calls, finish_reason="tool_calls", **ASKED), chat("Very.", **ANSWERED))
    async with (
        FakeOpenAI(*script, tokens=[1, 2]) as fake,
        running(
            global_config=config,
            weather=ExampleSingleToolCallResourcesServer,
            agent=(SimpleAgent, AGENT),
            policy_model=(VLLMModel, {**MODEL, "base_url": fake.base_url}),
        ) as client,
    ):
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        settings = RolloutCollectionConfig(
            input_jsonl_fpath=str(source), output_jsonl_fpath=str(tmp_path / "rows.jsonl"), disable_aggregation=True
        )
        (row,) = await RolloutCollectionHelper().run_from_config(settings)
    return row


def token_fields(item: Any) -> dict[str, Any]:
    return {name: item[name] for name in ASKED}


async def test_the_sink_gets_an_entry_for_every_call_and_is_closed_with_its_server(ledger, tmp_path, monkeypatch):
    row = await collect(tmp_path, monkeypatch, capture(LedgerSink, rebuild_response=False))
    assert row["reward"] == 1.0
    assert row["mask_sample"] is False
    first, second = ledger.pages["0-0"].entries
    assert (token_fields(dict(first)), token_fields(dict(second))) == (ASKED, ANSWERED)
    assert (first.rollout_id, first.schema_version) == ("0-0", 1)
    assert first.model_call_id != second.model_call_id
    assert first.created_at <= second.created_at
    assert first.output_items[first.token_item_index]["name"] == "get_weather"
    assert not set(ASKED) & set(first.output_items[first.token_item_index])
    assert (ledger.pages["0-0"].begun, ledger.pages["0-0"].lost) == (set(), set())
    assert ledger.log == ["begin", "put", "begin", "put", "sink closed"]


async def test_a_store_with_both_ends_gives_the_row_its_tokens(ledger, tmp_path, monkeypatch):
    row = await collect(tmp_path, monkeypatch, capture(LedgerStore))
    assert row["mask_sample"] is False
    assert [token_fields(record) for record in row["_ng_token_capture"]["records"]] == [ASKED, ANSWERED]
    output = row["response"]["output"]
    carriers = [item for item in output if "generation_token_ids" in item]
    assert [item["type"] for item in carriers] == ["function_call", "message"]
    assert [token_fields(item) for item in carriers] == [ASKED, ANSWERED]
    # One close of each end: a store with both is opened once by the model server and once by the collector.
    assert ledger.log == ["begin", "put"] * 2 + ["freeze", "drop"] + ["sink closed"] * 2
    assert ledger.pages == {}


@pytest.fixture
def installed(ledger: Ledger) -> Iterator[LedgerSource]:
    source = LedgerSource("blue")
    install_token_source(source)
    yield source
    install_token_source(None)


async def test_a_trainer_installs_its_source_and_keeps_it(ledger, installed, tmp_path, monkeypatch):
    row = await collect(tmp_path, monkeypatch, capture(LedgerSink, rebuild_response=True))
    assert row["mask_sample"] is False
    assert row["response"]["output"][-1]["generation_token_ids"] == [6]
    assert ledger.log[-3:] == ["freeze", "drop", "sink closed"]


async def test_a_sink_that_fails_masks_the_rollout_and_does_not_lose_it(ledger, installed, tmp_path, monkeypatch):
    row = await collect(tmp_path, monkeypatch, capture(LedgerSink, kwargs={"capacity": 1}))
    assert (row["reward"], row["mask_sample"]) == (1.0, True)
    assert row["_ng_token_capture"]["incomplete_reasons"] == ["unknown"]
    assert len(row["_ng_token_capture"]["records"]) == 1
    assert "mark" in ledger.log

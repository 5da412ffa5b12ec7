# SPDX-License-Identifier: Apache-2.0
"""An agent that others wrote observes its rollouts, and a collection with capture puts all of it into the rows."""

import json
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from nemo_gym import rollout_collection
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse, SimpleResourcesServer
from nemo_gym.rollout_collection import RolloutCollectionConfig, RolloutCollectionHelper
from nemo_gym.rollout_observability import (
    AgentInvocation,
    AgentObservationBundle,
    ContextCompactionObservation,
    TrajectoryRecord,
)
from nemo_gym.testing import reply, running, scripted_model, tool_call
from tests.contract.servers.field_notes_agent import FieldNotesAgent

AGENT = {
    "resources_server": {"type": "resources_servers", "name": "field"},
    "model_server": {"type": "responses_api_models", "name": "policy_model"},
}


class Field(SimpleResourcesServer):
    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/look")(self.look)
        return app

    async def look(self) -> str:
        return "a door"

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


async def collect_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], **agent: Any
) -> dict[str, Any]:
    """Collect one rollout into a file, and return its row."""
    source, output = tmp_path / "tasks.jsonl", tmp_path / "rollouts.jsonl"
    source.write_text(json.dumps({"responses_create_params": {"input": "What is there?"}, "problem_id": "p-7"}) + "\n")
    model = scripted_model(reply(tool_call("look")), "no luck", "there was a door", "It is a door.")
    async with running(
        global_config=settings, field=Field, agent=(FieldNotesAgent, {**AGENT, **agent}), policy_model=model
    ) as client:
        monkeypatch.setattr(rollout_collection, "setup_server_client", lambda _=None: client)
        config = RolloutCollectionConfig(
            input_jsonl_fpath=str(source),
            output_jsonl_fpath=str(output),
            agent_name="agent",
            disable_aggregation=True,
        )
        await RolloutCollectionHelper().run_from_config(config)
    (line,) = output.read_text().splitlines()
    row: dict[str, Any] = json.loads(line)
    assert row["reward"] == 1.0
    return row


async def test_a_row_holds_what_the_agent_observed_joined_with_the_calls_that_were_captured(tmp_path, monkeypatch):
    captures = tmp_path / "captures"
    settings = {"observability_enabled": True, "model_call_capture_dir": str(captures)}
    row = await collect_one(tmp_path, monkeypatch, settings)

    capture = row["ng_model_call_capture"]
    assert (capture["rollout_id"], capture["metrics"]["num_calls"], "gaps" in capture) == ("0-0", 4, False)
    assert len((captures / "0-0.capture.jsonl").read_text().splitlines()) == 4
    ids = [call["model_call_id"] for call in capture["calls"]]
    assert [call["call_index"] for call in capture["calls"]] == [0, 1, 2, 3]
    assert {(call["dialect"], call["model_ref"]["name"]) for call in capture["calls"]} == {
        ("responses", "policy_model")
    }
    assert capture["calls"][0]["tool_calls"][0]["name"] == "look"
    assert not any("request" in call or "response" in call for call in capture["calls"])

    bundle = AgentObservationBundle.model_validate(row["ng_agent_observations"])
    main, scout, _, _, compaction = bundle.records
    assert isinstance(main, AgentInvocation)
    assert isinstance(scout, AgentInvocation)
    assert isinstance(compaction, ContextCompactionObservation)
    assert [ref.model_call_id for ref in main.model_calls] == [ids[0], ids[2], ids[3]]
    assert [ref.model_call_id for ref in scout.model_calls] == [ids[1], None]
    assert compaction.before_model_call is not None
    assert compaction.after_model_call is not None
    assert (compaction.before_model_call.model_call_id, compaction.after_model_call.model_call_id) == (ids[0], ids[3])
    assert [ref.model_call_id for ref in compaction.model_calls] == [ids[2]]
    gaps = [(gap.code, gap.invocation_id, gap.detail) for gap in bundle.gaps]
    assert gaps == [
        ("scout_log_cut", "scout", "line 3"),
        ("model_call_reference_unmatched", "scout", "gone"),
    ]

    trajectory = TrajectoryRecord.model_validate(row["ng_trajectory"])
    assert (trajectory.task_id, trajectory.rollout_id) == ("p-7", "0-0")
    assert [one.invocation_id for one in trajectory.invocations] == ["main", "scout"]
    assert [(turn.question, turn.answer, turn.resolved) for turn in trajectory.turns] == [
        ("What is there?", "It is a door.", True)
    ]
    (looked,) = trajectory.tool_calls
    assert (looked.tool_name, looked.output, looked.status, looked.timing_source) == (
        "look",
        "a door",
        "completed",
        "harness",
    )
    assert [call.model_call_id for call in trajectory.model_calls] == ids
    assert [call.request["input"] for call in trajectory.model_calls[1:3]] == ["scout ahead", "sum it up"]
    assert trajectory.model_calls[3].response["output"][0]["content"][0]["text"] == "It is a door."
    assert trajectory.model_calls[0].response_metadata.model_ref is not None
    assert [(gap.code, gap.invocation_id, gap.detail) for gap in trajectory.gaps] == gaps


async def test_a_run_without_observability_holds_none_of_it(tmp_path, monkeypatch):
    row = await collect_one(tmp_path, monkeypatch, {})
    assert not any(key.startswith("ng_") for key in row)


async def test_what_an_agent_observes_by_itself_becomes_a_trajectory_without_capture(tmp_path, monkeypatch):
    row = await collect_one(tmp_path, monkeypatch, {}, always_observe=True)
    assert "ng_model_call_capture" not in row
    trajectory = TrajectoryRecord.model_validate(row["ng_trajectory"])
    assert (trajectory.task_id, trajectory.rollout_id, len(trajectory.turns)) == ("p-7", "0-0", 1)
    assert [gap.code for gap in trajectory.gaps] == [
        "producer_trajectory_identity_mismatch",
        "scout_log_cut",
        "model_calls_unavailable",
    ]

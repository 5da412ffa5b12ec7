# SPDX-License-Identifier: Apache-2.0
"""An episode begins with a task and ends with a reward, in servers of every kind; one that breaks gives no reward."""

import json

import pytest
from fastapi import HTTPException, Request

from nemo_gym import PARENT_DIR, grading
from nemo_gym.errors import RolloutFailure, ServerCallError, ToolCrashed
from nemo_gym.integrations.episodes import (
    EpisodeError,
    EpisodeServer,
    RowCursor,
    SteppedEpisode,
    ToolUse,
    read_action,
    render_messages,
)
from nemo_gym.integrations.live import LiveGymError
from nemo_gym.integrations.playing import read_tasks
from nemo_gym.step_environments import EnvResetRequest, EnvResetResponse, GymnasiumServer, tool_output
from nemo_gym.testing import running
from resources_servers.blackjack.app import BlackjackResourcesServer
from resources_servers.example_multi_step.app import ExampleMultiStepResourcesServer, GetSynonymValueRequest
from resources_servers.example_session_state_mgmt.app import ExampleSessionStateMgmtResourcesServer
from resources_servers.string_match.app import StringMatchResourcesServer, StringMatchVerifyRequest

pytestmark = pytest.mark.thorough

HIT, STAND = "<action>hit</action>", "<action>stand</action>"
QUIZ = {
    "responses_create_params": {"input": [{"role": "user", "content": "Say yes."}]},
    "expected_answer": "yes",
    "extraction_mode": "boxed",
}


def example_rows(server):
    return read_tasks(str(PARENT_DIR / "resources_servers" / server / "data" / "example.jsonl"))


async def test_a_server_that_scores_steps_is_played_to_its_end():
    async with running(blackjack=BlackjackResourcesServer) as client:
        episode = await EpisodeServer(client, "blackjack").begin(example_rows("blackjack")[0])
        assert [message["role"] for message in episode.start.messages] == ["system", "user"]
        assert "<action>stand</action>" in episode.start.messages[-1]["content"]
        while not episode.is_over:
            step = await episode.act(HIT)
        await episode.close()
    assert (step.reward, step.terminated, step.truncated, step.observation) == (-1.0, True, False, "")
    assert step.info["player_value"] > 21


async def test_the_tools_of_a_task_are_called_and_its_answer_is_scored():
    row = example_rows("example_multi_step")[0]
    async with running(multi_step=ExampleMultiStepResourcesServer) as client:
        episode = await EpisodeServer(client, "multi_step").begin(row)
        assert {tool["name"] for tool in episode.start.tools} == {"get_synonym_value", "extract_synonym_values"}
        values = []
        for synonym in row["expected_synonyms"]:
            step = await episode.act(ToolUse("get_synonym_value", {"synonym": synonym}))
            assert (step.reward, step.terminated) == (None, False)
            values.append(json.loads(step.observation)["synonym_value"])
        await episode.act(ToolUse("extract_synonym_values", {"synonym_values": values}))
        step = await episode.act("done")
    assert (step.reward, step.terminated) == (1.0, True)
    assert step.info["accuracy"] is True
    assert "response" not in step.info


async def test_the_calls_of_an_episode_share_a_session_and_those_of_another_do_not():
    row = {**QUIZ, "initial_count": 3, "expected_count": 5}
    async with running(counter=ExampleSessionStateMgmtResourcesServer) as client:
        server = EpisodeServer(client, "counter")
        first, second = await server.begin(row), await server.begin(row)
        await first.act(ToolUse("increment_counter", {"count": 2}))
        assert json.loads((await first.act(ToolUse("get_counter_value"))).observation) == {"count": 5}
        assert json.loads((await second.act(ToolUse("get_counter_value"))).observation) == {"count": 3}
        assert (await first.act("5")).reward == 1.0
        assert (await second.act("5")).reward == 0.0


@pytest.mark.parametrize(("answer", "reward"), [(r"\boxed{yes}", 1.0), (r"\boxed{no}", 0.0), ("", 0.0)])
async def test_a_server_without_tools_scores_the_first_text(answer, reward):
    async with running(quiz=StringMatchResourcesServer) as client:
        episode = await EpisodeServer(client, "quiz").begin(QUIZ)
        step = await episode.act(answer)
        assert (step.reward, step.terminated) == (reward, True)
        with pytest.raises(EpisodeError, match="the episode is over"):
            await episode.act(answer)


async def test_what_the_model_does_wrong_is_told_to_it():
    row = example_rows("example_multi_step")[0]
    async with running(multi_step=ExampleMultiStepResourcesServer) as client:
        episode = await EpisodeServer(client, "multi_step").begin(row)
        assert "Unknown tool 'verify'" in (await episode.act(ToolUse("verify", {}))).observation
        refused = await episode.act(ToolUse("get_synonym_value", {"word": "x"}))
        assert "synonym" in refused.observation
        assert not episode.is_over
        assert (await episode.act("I give up")).reward == 0.0


async def test_a_tool_that_crashes_ends_the_episode_without_a_reward():
    class Broken(ExampleMultiStepResourcesServer):
        async def get_synonym_value(self, body: GetSynonymValueRequest):
            raise ZeroDivisionError("a bug")

    async with running(multi_step=Broken) as client:
        episode = await EpisodeServer(client, "multi_step").begin(example_rows("example_multi_step")[0])
        with pytest.raises(ToolCrashed, match="get_synonym_value"):
            await episode.act(ToolUse("get_synonym_value", {"synonym": "x"}))
        assert episode.is_over


async def test_a_verifier_that_breaks_or_does_not_decide_is_a_failure():
    class Undecided(StringMatchResourcesServer):
        async def verify(self, body: StringMatchVerifyRequest):
            return {**(await super().verify(body)).model_dump(), "_ng_failure_class": "judge_failed"}

    class Boundless(StringMatchResourcesServer):
        async def verify(self, body: StringMatchVerifyRequest):
            return {**(await super().verify(body)).model_dump(), "reward": None}

    class Broken(StringMatchResourcesServer):
        async def verify(self, body: StringMatchVerifyRequest):
            raise HTTPException(503, "not now")

    async with running(undecided=Undecided, boundless=Boundless, broken=Broken) as client:
        for name, error in (("undecided", RolloutFailure), ("boundless", RolloutFailure), ("broken", ServerCallError)):
            episode = await EpisodeServer(client, name).begin(QUIZ)
            with pytest.raises(error):
                await episode.act("yes")


async def test_closing_an_episode_lets_the_server_forget_its_session():
    async with running(blackjack=BlackjackResourcesServer) as client:
        episode = await EpisodeServer(client, "blackjack").begin(example_rows("blackjack")[0])
        await episode.close()
        late = SteppedEpisode(client, "blackjack", example_rows("blackjack")[0])
        late._cookies = episode._cookies
        with pytest.raises(ServerCallError, match="no hand is being played"):
            await late.act(STAND)
        with pytest.raises(EpisodeError):
            await episode.act(STAND)


async def test_a_row_that_is_none_is_refused_before_the_server_is_asked():
    async with running(quiz=StringMatchResourcesServer) as client:
        with pytest.raises(LiveGymError, match="holds no row"):
            await EpisodeServer(client, "quiz").begin({"question": "?"})


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"tool": "add", "arguments": {"by": 2}}', ToolUse("add", {"by": 2})),
        ('{"tool": "add"}', ToolUse("add")),
        ('{"tool": "add", "arguments": [2]}', '{"tool": "add", "arguments": [2]}'),
        ('{"tool": "add", "why": "so"}', '{"tool": "add", "why": "so"}'),
        ('{"answer": 42}', '{"answer": 42}'),
        ("42", "42"),
        ("{", "{"),
    ],
)
def test_a_text_of_this_form_is_a_call_and_any_other_an_answer(text, action):
    assert read_action(text, offers_tools=True) == action
    assert read_action(text, offers_tools=False) == text


def test_rows_come_in_turn_and_a_seed_says_where_to_go_on():
    cursor = RowCursor([{**QUIZ, "id": number} for number in range(3)])
    assert [cursor.take()["id"] for _ in range(4)] == [0, 1, 2, 0]
    cursor.seek(8)
    assert [cursor.take()["id"] for _ in range(2)] == [2, 0]
    with pytest.raises(EpisodeError, match="needs a row"):
        RowCursor([]).take()


def test_messages_read_as_one_text():
    assert render_messages([{"role": "user", "content": "hi"}]) == "hi"
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    both = [{"role": "system", "content": "be kind"}, {"role": "user", "content": parts}]
    assert render_messages(both) == "system: be kind\n\nuser: one\ntwo"


class Shop(GymnasiumServer):
    """Says in messages what there is, and has a tool that the task does not name."""

    async def reset(self, metadata, session_id):
        return [{"role": "system", "content": "A shop."}, {"role": "user", "content": "Buy bread."}], {}

    async def handle_reset(self, body: EnvResetRequest, request: Request) -> EnvResetResponse:
        begun = await super().handle_reset(body, request)
        begun.tools = [{"type": "function", "name": "buy", "parameters": {}, "strict": False}]
        return begun

    async def step(self, action, metadata, session_id):
        [call] = grading.function_calls(action)
        told = {"tool_outputs": [tool_output(call.call_id, f"bought {call.arguments['what']}")]}
        return [{"role": "user", "content": "Anything else?"}], 0.5, False, True, told


async def test_a_server_that_scores_steps_may_bring_messages_and_tools_of_its_own():
    async with running(shop=Shop) as client:
        episode = await EpisodeServer(client, "shop").begin(QUIZ)
        assert [message["content"] for message in episode.start.messages] == ["Say yes.", "A shop.", "Buy bread."]
        assert ([tool["name"] for tool in episode.start.tools], episode.offers_tools) == (["buy"], True)
        step = await episode.act(ToolUse("buy", {"what": "bread"}))
    assert step.observation == "bought bread\nAnything else?"
    assert (step.reward, step.terminated, step.truncated) == (0.5, False, True)

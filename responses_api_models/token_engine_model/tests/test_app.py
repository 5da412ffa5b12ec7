# SPDX-License-Identifier: Apache-2.0
"""The server of a trainer's engine: whose call it is, and that replies carry the engine's own tokens."""

import pytest

from nemo_gym.rollout_correlation import rollout_context
from nemo_gym.server_utils import get_response_json
from nemo_gym.testing import running
from nemo_gym.token_engine import ChatFormat, EngineReply, TokenSettings, open_token_rollout
from responses_api_models.token_engine_model.app import TokenEngineModel

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}, "strict": True}
CALL = '<tool_call>{"name": "look", "arguments": {"at": 1}}</tool_call>'


class LetterTokenizer:
    """A token is a letter."""

    def encode(self, text, add_special_tokens):
        return [ord(letter) for letter in text]

    def decode(self, token_ids, skip_special_tokens):
        return "".join(map(chr, token_ids))

    def apply_chat_template(self, conversation, **settings):
        parts = (f"{each['role']}: {each['content']}|" for each in conversation)
        return "".join(parts) + "assistant: " * settings["add_generation_prompt"]


def settings_for(*texts, **room):
    left = list(texts)

    async def generate(prompt_ids, limit):
        ids = [ord(letter) for letter in left.pop(0)][:limit]
        return EngineReply(ids, [-1.0] * len(ids), is_cut_off=len(ids) == limit)

    return TokenSettings(generate, ChatFormat(LetterTokenizer()), model="student", **room)


async def post(client, path, body):
    reply = await client.post("policy_model", path, json=body)
    return reply.status, await get_response_json(reply)


@pytest.mark.parametrize("prefix", ["/ng-rollout/r1", "/ng-rollout/r1/training-token-capture"])
async def test_a_call_is_answered_by_the_engine_of_the_rollout_in_its_path(prefix):
    async with running(policy_model=TokenEngineModel) as client:
        with open_token_rollout("r1", settings_for("Hi.", "Bye.")):
            status, reply = await post(client, f"{prefix}/v1/responses", {"input": "Hello?"})
            assert (status, reply["model"], reply["status"]) == (200, "student", "completed")
            [item] = reply["output"]
            assert item["content"][0]["text"] == "Hi."
            assert item["prompt_token_ids"] == [ord(letter) for letter in "user: Hello?|assistant: "]
            assert item["generation_token_ids"] == [ord(letter) for letter in "Hi."]
            assert item["generation_log_probs"] == [-1.0] * 3
            again = [{"role": "user", "content": "Hello?"}, item, {"role": "user", "content": "And?"}]
            _, later = await post(client, f"{prefix}/v1/responses", {"input": again})
            so_far = "user: Hello?|assistant: Hi.|user: And?|assistant: "
            assert later["output"][0]["prompt_token_ids"] == [ord(letter) for letter in so_far]


async def test_inside_the_process_the_current_rollout_is_enough():
    async with running(policy_model=TokenEngineModel) as client:
        with open_token_rollout("r1", settings_for("Hi.")), rollout_context("r1"):
            assert (await post(client, "/v1/responses", {"input": "Hello?"}))[0] == 200


async def test_a_call_of_a_tool_is_an_item():
    async with running(policy_model=TokenEngineModel) as client:
        with open_token_rollout("r1", settings_for(CALL, CALL)), rollout_context("r1"):
            _, reply = await post(client, "/v1/responses", {"input": "Hello?", "tools": [TOOL]})
            [item] = reply["output"]
            assert (item["type"], item["name"], item["arguments"]) == ("function_call", "look", '{"at": 1}')
            body = {"input": "Hello?", "tools": [TOOL], "tool_choice": "none"}
            assert (await post(client, "/v1/responses", body))[1]["output"][0]["type"] == "message"


async def test_chat_has_the_tokens_on_its_message_and_counts_them():
    async with running(policy_model=TokenEngineModel) as client:
        with open_token_rollout("r1", settings_for("Hello")), rollout_context("r1"):
            body = {"messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 2}
            _, reply = await post(client, "/v1/chat/completions", body)
    [choice] = reply["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "He")
    assert choice["message"]["generation_token_ids"] == [ord("H"), ord("e")]
    assert reply["usage"]["completion_tokens"] == 2


async def test_a_conversation_without_room_for_a_reply_is_incomplete_and_no_failure():
    async with running(policy_model=TokenEngineModel) as client:
        with open_token_rollout("r1", settings_for(max_length=3)), rollout_context("r1"):
            status, reply = await post(client, "/v1/responses", {"input": "Hello?"})
    assert (status, reply["status"]) == (200, "incomplete")
    assert reply["incomplete_details"]["reason"] == "max_output_tokens"
    assert not any("prompt_token_ids" in item for item in reply["output"])


async def test_what_cannot_be_answered_is_refused_with_the_reason():
    async with running(policy_model=TokenEngineModel) as client:
        status, reply = await post(client, "/v1/responses", {"input": "Hello?"})
        assert status >= 400
        assert "names no rollout" in str(reply)
        picture = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:", "detail": "auto"}]}]
        with open_token_rollout("r1", settings_for()), rollout_context("r1"):
            assert await post(client, "/v1/responses", {"input": picture}) == (
                400,
                {"detail": "this model reads text only, but a message holds 'image_url'"},
            )
            body = {"messages": [{"role": "user", "content": "Hi"}], "n": 2}
            assert (await post(client, "/v1/chat/completions", body))[0] == 400

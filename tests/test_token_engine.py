# SPDX-License-Identifier: Apache-2.0
"""A trainer's engine answers the calls of the rollouts that it has open, and continues their exact tokens."""

import pytest

from nemo_gym._training.alignment import classify, join_turns
from nemo_gym.token_engine import (
    ChatFormat,
    EngineReply,
    NoTokenRollout,
    TokenSession,
    TokenSettings,
    find_token_session,
    open_token_rollout,
)
from tests.support.token_engines import PairTokenizer, ScriptedEngine

ASKED = [{"role": "user", "content": "Hello?"}]


def settings_for(reply=lambda prompt, number: f"Reply {number}.", **room):
    tokenizer = PairTokenizer()
    engine = ScriptedEngine(tokenizer, reply)

    async def generate(prompt_ids, limit):
        ids, log_probs = engine.write(prompt_ids, limit)
        return EngineReply(ids, log_probs, is_cut_off=limit is not None and len(ids) >= limit, policy_version=4)

    return TokenSettings(generate, ChatFormat(tokenizer), **room)


async def say(session, messages, added, **kwargs):
    answer = await session.answer(messages, None, **kwargs)
    return [*messages, answer.message, {"role": "user", "content": added}]


async def test_a_conversation_that_goes_on_is_one_sequence():
    session = TokenSession(settings_for())
    messages = await say(session, ASKED, "And?")
    messages = await say(session, messages, "And then?")
    answer = await session.answer(messages, None)
    assert answer.finish_reason == "stop"
    assert answer.message["content"] == "Reply 2."
    branches = join_turns(session.turns)
    assert classify(branches) == "clean"
    assert [turn.policy_version for turn in session.turns] == [4, 4, 4]


async def test_an_edited_history_begins_a_branch_and_the_unedited_one_can_still_go_on():
    session = TokenSession(settings_for())
    messages = await say(session, ASKED, "And?")
    edited = [ASKED[0], {"role": "assistant", "content": "Another reply."}, messages[2]]
    await session.answer(edited, None)
    await session.answer(messages, None)
    branches = join_turns(session.turns)
    assert [branch.turns for branch in branches] == [[0, 2], [1]]


async def test_a_template_that_cannot_go_on_starts_anew():
    settings = settings_for()
    settings.chat._tokenizer.apply_chat_template = lambda conversation, **_: "".join(
        f"{each['content']}<|im_start|>assistant\n" for each in reversed(conversation)
    )
    session = TokenSession(settings)
    await session.answer(await say(session, ASKED, "And?"), None)
    assert classify(join_turns(session.turns)) == "forked"


async def test_a_reply_takes_no_more_room_than_there_is():
    session = TokenSession(settings_for(lambda prompt, number: "12345678", max_response_length=12))
    messages = await say(session, ASKED, "?")
    assert len(session.turns[0].generated_ids) == 9
    answer = await session.answer(messages, None)
    assert (answer.turn, answer.finish_reason, answer.message["content"]) == (None, "length", None)
    assert len(session.turns) == 1


async def test_a_whole_sequence_may_be_bounded_and_a_reply_by_the_caller():
    session = TokenSession(settings_for(lambda prompt, number: "12345678"))
    answer = await session.answer(ASKED, None, limit=3)
    assert (answer.finish_reason, answer.message["content"]) == ("length", "123")
    whole = answer.prompt_length + 2
    session = TokenSession(settings_for(lambda prompt, number: "12345678", max_length=whole))
    answer = await session.answer(ASKED, None, limit=5)
    assert answer.message["content"] == "12"


async def test_an_engine_that_leaves_out_log_probs_is_told_so():
    async def generate(prompt_ids, limit):
        return EngineReply([1, 2], [0.0])

    session = TokenSession(TokenSettings(generate, ChatFormat(PairTokenizer())))
    with pytest.raises(RuntimeError, match="2 tokens, but returned 1 log-probs"):
        await session.answer(ASKED, None)


async def test_a_rollout_is_answered_while_it_is_open():
    with open_token_rollout("r1", settings_for()) as session:
        assert find_token_session("r1") is session
        await session.answer(ASKED, None)
        with pytest.raises(ValueError, match="open already"), open_token_rollout("r1", settings_for()):
            pass
    assert len(session.turns) == 1
    with pytest.raises(NoTokenRollout, match="'r1', which is not open"):
        find_token_session("r1")


@pytest.mark.parametrize("rollout_id", [None, "", "r2", "r1-a1"])
def test_a_call_that_belongs_to_no_open_rollout_is_refused(rollout_id):
    with open_token_rollout("r1", settings_for()), pytest.raises(NoTokenRollout, match="hint: "):
        find_token_session(rollout_id)

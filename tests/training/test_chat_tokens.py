# SPDX-License-Identifier: Apache-2.0
"""Conversations become token ids, and what a model wrote is never tokenized again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nemo_gym._training.chat_tokens import (
    ChatFormat,
    NotContinuable,
    ParsedReply,
    build_message,
    digest_history,
    parse_hermes_calls,
)
from tests.support.token_engines import END, PairTokenizer, call

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "Hello?"}]


def make_tokenizer(template=None):
    tokenizer = PairTokenizer()
    if template is not None:
        tokenizer.apply_chat_template = template
    return tokenizer


texts = st.text(alphabet="abc <>\n", max_size=12)
replies = st.one_of(texts, texts.map(lambda text: text + call("look", at=text)))


@given(st.lists(st.tuples(replies, st.booleans(), texts), min_size=1, max_size=5), st.booleans())
async def test_each_prompt_is_all_tokens_so_far_and_then_what_the_template_adds(turns, ends_itself):
    tokenizer = make_tokenizer()
    chat, messages = ChatFormat(tokenizer), list(ASKED)
    ids = chat.start(messages, TOOLS)
    for reply, is_tool, added in turns:
        generated = tokenizer.spell(reply) + [tokenizer.end_id] * ends_itself
        ids = [*ids, *generated]
        messages += [build_message(await chat.parse(generated, TOOLS))]
        messages += [{"role": "tool" if is_tool else "user", "content": added, "tool_call_id": "1"}]
        prompt = chat.extend(ids, messages, len(messages) - 2, TOOLS)
        assert prompt[: len(ids)] == ids
        role = "tool" if is_tool else "user"
        rest = f"\n<|im_start|>{role}\n{added}{END}\n<|im_start|>assistant\n"
        assert tokenizer.decode(prompt[len(ids) :]) == ("" if ends_itself else END) + rest
        ids = prompt


def test_a_template_that_leaves_out_the_text_beside_a_call_is_continued_all_the_same():
    def render(conversation, **settings):
        silent = [{**each, "content": ""} if each.get("tool_calls") else each for each in conversation]
        return PairTokenizer().apply_chat_template(silent, **settings)

    tokenizer = make_tokenizer(render)
    calls = build_message(ParsedReply("hm", [("look", "{}")]))
    ids = [*tokenizer.spell("so far"), tokenizer.end_id]
    messages = [*ASKED, calls, {"role": "tool", "content": "x", "tool_call_id": "1"}]
    added = ChatFormat(tokenizer).extend(ids, messages, 1, TOOLS)[len(ids) :]
    assert tokenizer.decode(added) == f"\n<|im_start|>tool\nx{END}\n<|im_start|>assistant\n"


def test_a_template_that_writes_new_messages_first_cannot_be_continued():
    def render(conversation, **settings):
        return PairTokenizer().apply_chat_template(list(reversed(conversation)), **settings)

    chat = ChatFormat(make_tokenizer(render))
    with pytest.raises(NotContinuable):
        chat.extend([1], [*ASKED, {"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}], 1, None)


def test_arguments_of_calls_are_objects_for_the_template_and_developers_are_its_system():
    seen = []

    def render(conversation, **settings):
        seen.extend(conversation)
        return ""

    message = build_message(ParsedReply("", [("look", '{"at": 1}')]))
    ChatFormat(make_tokenizer(render)).start(
        [{"role": "developer", "content": [{"type": "text", "text": "a"}]}, message], None
    )
    assert seen[0] == {"role": "system", "content": "a"}
    assert seen[1]["tool_calls"][0]["function"]["arguments"] == {"at": 1}


def test_settings_of_the_template_reach_it():
    seen = {}

    def render(conversation, **settings):
        seen.update(settings)
        return ""

    ChatFormat(make_tokenizer(render), template_settings={"enable_thinking": False}).start(ASKED, None)
    assert seen["enable_thinking"] is False
    assert seen["tools"] is None


def test_a_picture_is_refused_because_nobody_would_see_it():
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    with pytest.raises(ValueError, match="image_url"):
        ChatFormat(make_tokenizer()).start([picture], None)


def test_calls_are_read_and_what_is_none_stays_text():
    assert parse_hermes_calls(f"So: {call('look', at=1)}") == ParsedReply("So:", [("look", '{"at": 1}')])
    for broken in ("<tool_call>{not json}</tool_call>", "<tool_call>[1]</tool_call>", "<tool_call>{}</tool_call>"):
        assert parse_hermes_calls(f"a {broken} ") == ParsedReply(f"a {broken} ")


async def test_without_tools_a_call_is_only_text():
    tokenizer = make_tokenizer()
    parsed = await ChatFormat(tokenizer).parse(tokenizer.spell(call("look")), None)
    assert parsed == ParsedReply(call("look"))


async def test_reasoning_that_the_template_has_opened_is_closed_by_the_model():
    tokenizer = make_tokenizer()
    parsed = await ChatFormat(tokenizer).parse(tokenizer.spell("hm</think>yes"), None)
    assert parsed.text == "<think>hm</think>yes"


def test_a_history_is_known_again_by_what_was_said_and_not_by_ids_or_white_space():
    said = build_message(ParsedReply(" <think> a </think> b\n", [("look", '{"at":1}')]))
    again = build_message(ParsedReply("<think>a</think>b", [("look", '{"at": 1}')]))
    assert said["tool_calls"][0]["id"] != again["tool_calls"][0]["id"]
    assert digest_history([*ASKED, said], TOOLS) == digest_history([*ASKED, again], TOOLS)
    for other in (
        build_message(ParsedReply("b", [("look", '{"at":1}')])),
        build_message(ParsedReply("<think>a</think>b")),
    ):
        assert digest_history([*ASKED, said], TOOLS)[-1] != digest_history([*ASKED, other], TOOLS)[-1]
    assert digest_history(ASKED, TOOLS) != digest_history(ASKED, None)


def test_a_template_that_writes_the_last_reply_otherwise_than_earlier_ones_is_continued():
    def render(conversation, **settings):
        last = len(conversation) - 1
        written = [
            {**each, "content": f"<think>\n</think>{each['content']}"}
            if at == last and each["role"] == "assistant"
            else each
            for at, each in enumerate(conversation)
        ]
        return PairTokenizer().apply_chat_template(written, **settings)

    tokenizer = make_tokenizer(render)
    ids = [*tokenizer.spell("<think>hm</think>a"), tokenizer.end_id]
    messages = [*ASKED, {"role": "assistant", "content": "<think>hm</think>a"}, {"role": "user", "content": "b"}]
    added = ChatFormat(tokenizer).extend(ids, messages, 1, None)[len(ids) :]
    assert tokenizer.decode(added) == f"\n<|im_start|>user\nb{END}\n<|im_start|>assistant\n"

# SPDX-License-Identifier: Apache-2.0
"""Conversations become token ids, and what a model wrote is never tokenized again."""

import pytest
from hypothesis import given, strategies as st

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


def test_a_template_that_refuses_to_go_on_cannot_be_continued():
    def render(conversation, **settings):
        if any(each["role"] == "tool" for each in conversation):
            raise RuntimeError("this model knows no tools")
        return PairTokenizer().apply_chat_template(conversation, **settings)

    chat = ChatFormat(make_tokenizer(render))
    messages = [*ASKED, {"role": "assistant", "content": "a"}, {"role": "tool", "content": "b", "tool_call_id": "1"}]
    with pytest.raises(NotContinuable):
        chat.extend([1], messages, 1, None)
    with pytest.raises(RuntimeError, match="knows no tools"):  # what the user asks for is another matter
        chat.start(messages, None)


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


# --- templates in the manner of some families of models ---------------------------------------------------------------

TEMPLATES = {
    "no system, another name for the assistant": (
        "<bos>{% for m in messages %}<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
        "{{ m.content | trim }}{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}"
        "<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    ),
    "a call instead of text, and outputs as JSON": (
        "<bos>{% for m in messages %}<head>{{ 'ipython' if m.role == 'tool' else m.role }}</head>\n\n"
        "{% if m.tool_calls %}{{ m.tool_calls[0].function | tojson }}"
        "{% elif m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}{% endif %}<eot>"
        "{% endfor %}{% if add_generation_prompt %}<head>assistant</head>\n\n{% endif %}"
    ),
    "strict about what follows what": (
        "<s>{% for m in messages %}"
        "{% if m.role == 'tool' and not messages[loop.index0 - 1].tool_calls %}{{ raise('no call') }}{% endif %}"
        "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% elif m.role == 'tool' %}[RESULTS] {{ m.content }} [/RESULTS]"
        "{% else %}{{ m.content }}{% for c in m.tool_calls or [] %}[CALL]{{ c.function | tojson }}{% endfor %}</s>"
        "{% endif %}{% endfor %}"
    ),
}
ENDS = ("<end_of_turn>", "<eot>", "</s>")


def make_renderer(template):
    environment = pytest.importorskip("jinja2").Environment()
    compiled = environment.from_string(template)

    def raise_exception(message):
        raise ValueError(message)

    def render(conversation, tools=None, tokenize=False, add_generation_prompt=False):
        given = {"messages": conversation, "tools": tools, "add_generation_prompt": add_generation_prompt}
        return compiled.render({**given, "raise": raise_exception})

    return render


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_reply_as_the_template_writes_it_continues_to_what_the_template_would_have_written(family):
    tokenizer = make_tokenizer(make_renderer(TEMPLATES[family]))
    chat = ChatFormat(tokenizer)
    messages = list(ASKED)
    ids = chat.start(messages, TOOLS)
    for reply, added in (
        (ParsedReply("", [("look", '{"at": 1}')]), {"role": "tool", "content": 'a "b"\n', "tool_call_id": "1"}),
        (ParsedReply("So it is."), {"role": "user", "content": "Again?"}),
        (ParsedReply("", [("look", "{}")]), {"role": "tool", "content": "c", "tool_call_id": "2"}),
    ):
        messages.append(build_message(reply))
        whole = chat._render(messages, TOOLS, opens_turn=False)
        written = whole[len(tokenizer.decode(ids)) :]
        end = next(end for end in ENDS if end in written)
        ids = [*ids, *tokenizer.spell(written.partition(end)[0]), *tokenizer.encode(end, add_special_tokens=False)]
        messages.append(added)
        ids = chat.extend(ids, messages, len(messages) - 2, TOOLS)
        assert tokenizer.decode(ids) == chat._render(messages, TOOLS, opens_turn=True)

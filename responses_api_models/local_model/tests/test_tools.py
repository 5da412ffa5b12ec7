# SPDX-License-Identifier: Apache-2.0
"""Tools, conversations and token alignment: everything that needs no model."""

import json
from typing import Any

import pytest
from fastapi import HTTPException
from hypothesis import given, settings, strategies as st

from responses_api_models.local_model import chat, exact, tools
from responses_api_models.local_model.chat import Seeds

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TRICKY = 'a"\\{}</>_é🌍\n'
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("choice", "names", "mode"),
    [
        (None, ["get_weather", "add"], "auto"),
        ("auto", ["get_weather", "add"], "auto"),
        ("required", ["get_weather", "add"], "required"),
        ("none", [], "none"),
        (named("add"), ["add"], "required"),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("get_weather")]}},
            ["get_weather"],
            "auto",
        ),
    ],
)
def test_tool_choice_says_which_tools_may_and_which_must_be_called(choice: Any, names: list[str], mode: str) -> None:
    box = tools.read_toolbox({"tools": [WEATHER, ADD], "tool_choice": choice})
    assert ([tool.name for tool in box.tools], box.mode) == (names, mode)


def test_a_choice_of_a_tool_that_is_not_offered_is_refused() -> None:
    with pytest.raises(HTTPException, match="names 'subtract', but the tools are 'get_weather', 'add'"):
        tools.read_toolbox({"tools": [WEATHER, ADD], "tool_choice": named("subtract")})


def test_a_required_call_without_tools_is_refused() -> None:
    with pytest.raises(HTTPException, match="the request has no tools"):
        tools.read_toolbox({"tool_choice": "required"})


@settings(max_examples=50, deadline=None)
@given(
    arguments=st.dictionaries(st.text(TRICKY), st.text(TRICKY) | st.integers() | st.lists(st.none())),
    words=st.text('so {}"\n'),
)
def test_a_call_is_read_as_it_was_written(arguments: dict[str, Any], words: str) -> None:
    box = tools.read_toolbox({"tools": [WEATHER]})
    text = json.dumps(arguments, ensure_ascii=False)
    said, call = tools.read_call(words + tools.write_call("get_weather", text), box)
    assert (said, call) == (words.strip(), tools.Call("get_weather", text))


def test_a_call_that_was_cut_off_stays_text() -> None:
    box = tools.read_toolbox({"tools": [WEATHER]})
    text = tools.write_call("get_weather", '{"city": "Par')[: -len("}</tool_call>")]
    assert tools.read_call(text, box) == (text, None)


def test_calls_and_results_are_told_in_words_that_every_chat_template_has() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    said = chat.write_conversation(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "How is "}, {"type": "text", "text": "Oslo?"}]},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "content": "cold", "tool_call_id": "c1"},
            {"role": "user", "content": "So?"},
        ],
        tools.Toolbox(),
    )
    assert said == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "How is Oslo?"},
        {
            "role": "assistant",
            "content": '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>',
        },
        {"role": "user", "content": "Result of get_weather: cold\n\nSo?"},
    ]


def test_tools_are_told_beside_the_callers_own_system_message() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How is Oslo?"}]
    said = chat.write_conversation(messages, tools.read_toolbox({"tools": [WEATHER]}))
    assert said[0]["content"].startswith("Be brief.\n\n")
    assert "get_weather(city): Get the weather." in said[0]["content"]
    assert said[-1] == messages[-1]


def test_an_image_is_refused() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    with pytest.raises(HTTPException, match="reads text only, but a message holds 'image_url'"):
        chat.write_conversation([{"role": "user", "content": [image]}], tools.Toolbox())


def test_a_request_with_a_top_p_of_its_own_samples_from_all_tokens_that_it_allows() -> None:
    defaults = {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "min_p": 0.1}
    asked = {"messages": [{"role": "user", "content": "Hello!"}]}
    assert chat.read_ask(asked, defaults).sampling == {**defaults, "stop": []}
    pure = chat.read_ask({**asked, "top_p": 1.0, "temperature": 1.0}, defaults).sampling
    assert pure == {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "stop": []}
    assert chat.read_ask({**asked, "top_p": 1.0, "top_k": 5}, defaults).sampling["top_k"] == 5


def scores(*ids: int) -> list[dict[str, Any]]:
    return [{"id": token, "logprob": -float(number)} for number, token in enumerate(ids)]


def test_scores_are_placed_where_only_one_place_is_possible() -> None:
    assert exact.find_certain_scores([7, 8, 9], scores(7, 8, 9)) == {0: 0.0, 1: -1.0, 2: -2.0}
    assert exact.find_certain_scores([7, 8, 9], scores(7, 9)) == {0: 0.0, 2: -1.0}
    assert exact.find_certain_scores([7, 8, 8, 9], scores(7, 8, 9)) == {0: 0.0, 3: -2.0}
    assert exact.find_certain_scores([7, 8], scores(9)) == {}


@settings(max_examples=50, deadline=None)
@given(data=st.data(), token_ids=st.lists(st.integers(0, 3), max_size=12))
def test_no_score_is_ever_given_to_another_token(data: st.DataObject, token_ids: list[int]) -> None:
    kept = data.draw(st.lists(st.sampled_from(range(len(token_ids))), unique=True)) if token_ids else []
    given_scores = [{"id": token_ids[at], "logprob": -float(at)} for at in sorted(kept)]
    for at, log_prob in exact.find_certain_scores(token_ids, given_scores).items():
        assert log_prob == -float(at)


def test_a_seed_in_the_config_gives_repeats_of_a_prompt_different_seeds_and_runs_the_same() -> None:
    def run(order: list[list[int]]) -> list[tuple[int, int]]:
        seeds = Seeds(1)
        return sorted((prompt[0], seeds.draw(prompt)) for prompt in order)

    first = run([[1, 2], [1, 2], [3, 4]])
    assert first == run([[3, 4], [1, 2], [1, 2]])
    assert len({seed for _, seed in first}) == 3
    assert Seeds(2).draw([3, 4]) != dict(first)[3]

# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._viewer.files.conversation_blocks import read_captured_calls
from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.html.rollout_page import render_rollout

_PICTURE = "data:image/png;base64,iVBORw0KGgo="


def titles(row) -> list[str]:
    return [block.title for block in read_rollout(row).blocks]


@pytest.fixture
def talk(rollout):
    row = rollout(3, 1, 1.0, overlap=0.5, passed=True, expected_answer="4", rubric={"a": 1})
    row["responses_create_params"] = {
        "input": [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "2+2?"}]},
        ],
        "tools": [{"type": "function", "name": "add"}],
        "temperature": 0.5,
        "top_p": None,
    }
    row["response"]["output"] = [
        {"type": "reasoning", "summary": [{"text": "one thought"}, {"text": "another"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a":2,"b":2}', "status": "completed"},
        {"type": "function_call_output", "call_id": "c1", "output": '{"sum":4}', "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "not json"},
        {"type": "function_call_output", "call_id": "c2", "output": "an error"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "4"}]},
        {"role": "user", "content": "thanks"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no more"}]},
    ]
    return row


def test_blocks_say_in_plain_words_who_did_what(talk):
    assert titles(talk) == [
        "System prompt",
        "User",
        "Model thought",
        "Model thought",
        "Model asked for add",
        "Tool answered",
        "Model asked for add",
        "Tool answered",
        "Model said",
        "User",
        "Answer",
    ]


def test_turns_that_were_given_are_not_called_the_models_own(rollout):
    row = rollout(text="4")
    row["responses_create_params"]["input"] = [
        {"role": "user", "content": "1+1?"},
        {"type": "reasoning", "summary": [{"text": "easy"}]},
        {"type": "function_call", "call_id": "g", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "g", "output": "2"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "2+2?"},
    ]
    blocks = read_rollout(row).blocks
    assert [(block.title, block.generated) for block in blocks] == [
        ("User", False),
        ("Reasoning", False),
        ("Assistant asked for add", False),
        ("Tool answered", False),
        ("Assistant", False),
        ("User", False),
        ("Answer", True),
    ]


def test_what_ends_in_a_tool_call_has_no_answer(rollout):
    row = rollout(tools=("search",))
    row["response"]["output"].pop()
    assert read_rollout(row).scoring.answer is None


def test_texts_are_as_they_were_and_json_is_indented(talk):
    blocks = read_rollout(talk).blocks
    assert [block.text for block in blocks[:4]] == ["Be brief.", "2+2?", "one thought", "another"]
    assert (blocks[4].text, blocks[4].is_json) == ('{\n  "a": 2,\n  "b": 2\n}', True)
    assert (blocks[5].text, blocks[5].status) == ('{\n  "sum": 4\n}', "completed")
    assert (blocks[6].text, blocks[6].is_json) == ("not json", False)
    assert blocks[10].text == "no more"
    assert [block.generated for block in blocks[:3]] == [False, False, True]


def test_the_score_and_its_parts_come_apart(talk):
    one = read_rollout(talk)
    assert (one.title, one.reward, one.outcome, one.agent, one.response_id) == (
        "Task 3 · Rollout 1",
        1.0,
        "scored",
        "a",
        "resp_3_1",
    )
    assert one.scoring.targets == [("expected_answer", "4")]
    assert one.scoring.components == [("overlap", 0.5), ("passed", True), ("rubric.a", 1)]
    assert one.settings == {"temperature": 0.5}
    assert one.tools == [{"type": "function", "name": "add"}]
    assert one.usage["output_tokens"] == 8
    assert one.row == talk


def test_calls_come_with_time_and_tokens(rollout):
    call = {
        "model_ref": {"name": "policy"},
        "status_code": 200,
        "latency_total_ms": 12.5,
        "latency_ttft_ms": 3,
        "tokens_in": 7,
        "tokens_out": 2,
    }
    row = rollout(ng_model_call_capture={"calls": [call, {"error_category": "timeout"}]})
    first, second = read_rollout(row).calls
    assert (first.number, first.model, first.status_code, first.latency_ms, first.ttft_ms) == (
        1,
        "policy",
        200,
        12.5,
        3.0,
    )
    assert (first.input_tokens, first.output_tokens, first.error) == (7, 2, None)
    assert (second.error, second.latency_ms, second.input_tokens) == ("timeout", None, None)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"finish_reason": "tool_calls"}, "tool_calls"),
        ({"response_status": "completed"}, "completed"),
        ({"response_status": "incomplete", "finish_reason": "max_output_tokens"}, "max_output_tokens"),
        ({}, None),
    ],
)
def test_a_call_says_how_it_ended(rollout, told, reason):
    [call] = read_rollout(rollout(ng_model_call_capture={"calls": [told]})).calls
    assert call.finish_reason == reason


_CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}
_ANSWER = {"type": "function_call_output", "call_id": "c1", "output": "4"}
_CHAT_CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [{"id": "c1", "function": {"name": "add", "arguments": "{}"}}],
}


@pytest.mark.parametrize(
    "calls",
    [
        [{"request": {"input": "2+2?"}, "response": {"output": [_CALL]}}, {"request": {"input": [_CALL, _ANSWER]}}],
        [
            {"request": {"messages": []}, "response": {"choices": [{"message": _CHAT_CALL}]}},
            {"request": {"messages": [_CHAT_CALL, {"role": "tool", "tool_call_id": "c1", "content": "4"}]}},
        ],
    ],
)
def test_a_failed_rollout_shows_its_prompt_and_what_was_said_until_then(failed, calls):
    named = [{"model_call_id": str(number), **call} for number, call in enumerate(calls)]
    captured = [{"model_call_id": call["model_call_id"]} for call in named]
    row = failed() | {"ng_model_call_capture": {"calls": captured}, "ng_trajectory": {"model_calls": named}}
    planned = {"responses_create_params": {"input": "2+2?"}, "expected_answer": "4"}
    one = read_rollout(row, planned)
    assert [(block.title, block.text) for block in one.blocks] == [
        ("User", "2+2?"),
        ("Model asked for add", "{}"),
        ("Tool answered", "4"),
    ]
    assert one.scoring.targets == [("expected_answer", "4")]


def test_a_cut_off_rollout_and_crashed_tools_are_told(rollout):
    errors = [{"tool": "search", "status": 500, "message": "it broke"}]
    row = rollout(tools=("search", "submit"), _ng_cut_off="max_steps", _ng_tool_errors=errors)
    one = read_rollout(row)
    assert (one.cut_off, one.finish_reason) == ("max_steps", "max_steps")
    [error] = one.tool_errors
    assert (error.tool, error.status, error.message) == ("search", "500", "it broke")
    assert [(block.name, block.error) for block in one.blocks if block.kind == "tool_output"] == [
        ("search", "crashed with status 500"),
        ("submit", None),
    ]


def test_of_several_calls_of_a_tool_the_one_that_crashed_is_marked(rollout):
    row = rollout(tools=("search", "search"), _ng_tool_errors=[{"tool": "search", "status": 502, "message": "boom"}])
    row["response"]["output"][3]["output"] = "error: boom"
    outputs = [block for block in read_rollout(row).blocks if block.kind == "tool_output"]
    assert [block.error for block in outputs] == [None, "crashed with status 502"]


def test_what_was_said_in_a_call_is_found_in_the_trajectory(rollout):
    row = rollout(
        ng_model_call_capture={"calls": [{"model_call_id": "a", "tokens_in": 1}, {"model_call_id": "b"}, {}, 3]},
        ng_trajectory={"model_calls": [{"model_call_id": "a", "request": {"q": 1}, "response": None}, {}, 3]},
    )
    assert read_captured_calls(row) == [
        {"model_call_id": "a", "tokens_in": 1, "request": {"q": 1}},
        {"model_call_id": "b"},
        {},
    ]


def test_a_failure_says_what_happened(failed):
    one = read_rollout(failed(2, 0, "verifier", "it crashed"))
    assert (one.outcome, one.reward, one.blocks) == ("failed", None, [])
    assert (one.failure.kind, one.failure.message, one.failure.boundary) == ("verifier", "it crashed", "/run")
    assert (one.failure.attempts, one.failure.elapsed_s, one.failure.retryable) == (3, 1.5, True)


def test_a_profiled_task_shows_its_question_and_its_numbers():
    row = {
        "_ng_task_index": 4,
        "sample": {"responses_create_params": {"input": "2+2?"}, "answer": "4"},
        "mean/reward": 0.25,
        "num_rollouts": 8,
        "rollout_infos": [{"reward": 1}],
    }
    one = read_rollout(row)
    assert (one.kind, one.reward, one.title) == ("profile", 0.25, "Task 4")
    assert [block.text for block in one.blocks] == ["2+2?"]
    assert ("num_rollouts", 8) in one.scoring.components
    assert one.scoring.targets == [("answer", "4")]


def test_pictures_in_the_row_are_shown_and_others_are_not(rollout):
    row = rollout()
    parts = [{"type": "input_image", "image_url": url} for url in (_PICTURE, "https://example.com/x.png")]
    row["responses_create_params"]["input"] = [{"role": "user", "content": parts}]
    [asked, _] = read_rollout(row).blocks
    assert asked.images == (_PICTURE,)
    assert "https://example.com/x.png" in asked.text


@pytest.mark.parametrize(
    "url",
    [
        "data:image/svg+xml;base64,PHN2Zz4=",
        "javascript:alert(1)",
        'data:image/png;base64,AAAA" onerror="alert(1)',
        "data:text/html;base64,AAAA",
        None,
        7,
    ],
)
def test_only_plain_pictures_are_safe(rollout, url):
    row = rollout()
    row["responses_create_params"]["input"] = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    assert read_rollout(row).blocks[0].images == ()


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"responses_create_params": None, "response": []},
        {"responses_create_params": {"input": [1, None, {}]}, "response": {"output": [3, {"type": None}]}},
        {"response": {"output": "text", "usage": 3}, "agent_ref": 4},
        {"sample": 3, "rollout_infos": []},
        {"ng_model_call_capture": {"calls": 3}},
        {"ng_model_call_capture": {"calls": [{"model_call_id": []}]}, "ng_trajectory": {"model_calls": [[]]}},
    ],
)
def test_a_row_of_any_shape_can_be_shown(row):
    assert "Raw JSON" in render_rollout(read_rollout(row))


def test_an_item_of_an_unknown_kind_is_shown_as_json(rollout):
    row = rollout()
    row["response"]["output"] = [{"type": "compaction", "note": "x"}, {"type": "web_search_call", "id": "w1"}]
    _, other, hosted = read_rollout(row).blocks
    assert (other.kind, other.title, other.is_json) == ("other", "compaction", True)
    assert (hosted.kind, hosted.name) == ("tool_call", "web_search")


def test_instructions_are_a_system_message(rollout):
    row = rollout()
    row["responses_create_params"]["instructions"] = "Be kind."
    assert read_rollout(row).blocks[0].text == "Be kind."

# SPDX-License-Identifier: Apache-2.0
import orjson
import pytest

from nemo_gym._reports.conversation import read_rollout

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


def test_blocks_are_titled_by_turn_and_step(talk):
    assert titles(talk) == [
        "Turn 0 Step 0 - System message",
        "Turn 1 Step 0 - User message",
        "Turn 1 Step 0 - Reasoning",
        "Turn 1 Step 0 - Reasoning",
        "Turn 1 Step 1 - Function call - `add` (tool call ID `c1`)",
        "Turn 1 Step 1 - Function call output (tool call ID `c1`)",
        "Turn 1 Step 2 - Function call - `add` (tool call ID `c2`)",
        "Turn 1 Step 2 - Function call output (tool call ID `c2`)",
        "Turn 1 Step 2 - Assistant message",
        "Turn 2 Step 0 - User message",
        "Turn 2 Step 0 - Assistant message",
    ]


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
    assert one.components == [("overlap", 0.5), ("passed", True)]
    assert one.extras == [("expected_answer", "4"), ("rubric", {"a": 1})]
    assert one.settings == {"temperature": 0.5}
    assert one.tools == [{"type": "function", "name": "add"}]
    assert one.usage["output_tokens"] == 8
    assert orjson.loads(one.raw_json()) == orjson.loads(one.compact_json()) == talk


def test_calls_come_with_time_and_tokens(rollout):
    call = {
        "model_ref": {"name": "policy"},
        "status_code": 200,
        "latency_ms": 12.5,
        "latency_ttft_ms": 3,
        "response": {"usage": {"prompt_tokens": 7, "completion_tokens": 2}},
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
    assert ("num_rollouts", 8) in one.components
    assert ("answer", "4") in one.extras


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
    ],
)
def test_a_row_of_any_shape_can_be_read(row):
    assert read_rollout(row).raw_json()


def test_an_item_of_an_unknown_kind_is_shown_as_json(rollout):
    row = rollout()
    row["response"]["output"] = [{"type": "compaction", "note": "x"}, {"type": "web_search_call", "id": "w1"}]
    _, other, hosted = read_rollout(row).blocks
    assert (other.kind, other.title, other.is_json) == ("other", "Turn 1 Step 0 - compaction", True)
    assert (hosted.kind, hosted.name) == ("tool_call", "web_search")


def test_instructions_are_a_system_message(rollout):
    row = rollout()
    row["responses_create_params"]["instructions"] = "Be kind."
    assert read_rollout(row).blocks[0].text == "Be kind."

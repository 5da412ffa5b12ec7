# SPDX-License-Identifier: Apache-2.0
"""Finding text and answers in what a model wrote."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym import grading

MEGABYTE = 1_000_000
fuzz = st.text(alphabet=st.sampled_from("{}\\`~*<>/:,.-+e019 aA\n$") | st.characters(), max_size=80)


def message(*texts, role="assistant"):
    return {"type": "message", "role": role, "content": [{"type": "output_text", "text": text} for text in texts]}


def call(name, arguments, call_id="c1"):
    return {"type": "function_call", "name": name, "arguments": arguments, "call_id": call_id}


def as_object(value):
    if isinstance(value, dict):
        return SimpleNamespace(**{name: as_object(inner) for name, inner in value.items()})
    return [as_object(inner) for inner in value] if isinstance(value, list) else value


class TestAssistantText:
    def test_parts_are_joined_and_messages_separated(self):
        response = {"output": [message("a", "b"), {"type": "reasoning", "summary": []}, message("c")]}
        assert grading.assistant_text(response) == "ab\nc"
        assert grading.last_assistant_text(response) == "c"

    def test_joined_text_has_nothing_between_messages_and_an_answer_no_thinking(self):
        response = {"output": [message("<think>no: 4", "</think>"), message("\\boxed{3"), message("2}")]}
        assert grading.joined_text(response) == "<think>no: 4</think>\\boxed{32}"
        assert grading.answer_text(response) == "\\boxed{32}"

    def test_parts_may_be_separated_too(self):
        assert grading.assistant_text({"output": [message("a", "b"), message("c")]}, between_parts="\n") == "a\nb\nc"

    @pytest.mark.parametrize("form", [dict, as_object])
    @pytest.mark.parametrize(
        ("last", "text"),
        [
            (message("first", "second"), "first"),
            ({"type": "message", "role": "assistant", "content": "plain"}, "plain"),
            ({"type": "message", "role": "assistant", "content": []}, ""),
            ({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, ""),
            ({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}, ""),
            (call("x", "{}"), ""),
        ],
    )
    def test_the_last_items_text_is_its_first_part(self, form, last, text):
        assert grading.last_item_text(form({"output": [message("earlier"), last]})) == text
        assert grading.last_item_text(form({"output": []})) == ""

    def test_an_object_reads_like_its_dict(self):
        response = {"output": [message("a"), call("f", "{}"), message("b")]}
        assert grading.assistant_text(as_object(response)) == "a\nb"
        assert grading.function_calls(as_object(response)) == grading.function_calls(response)

    def test_other_roles_and_refusals_are_not_the_assistants_text(self):
        refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
        assert grading.assistant_text({"output": [message("x", role="user"), refusal]}) == ""

    def test_content_may_be_plain_text(self):
        assert grading.assistant_text({"output": [{"role": "assistant", "content": "hi"}]}) == "hi"

    @pytest.mark.parametrize("response", [None, {}, {"output": None}, {"output": []}])
    def test_nothing_written_is_empty(self, response):
        assert grading.assistant_text(response) == ""
        assert grading.last_assistant_text(response) == ""
        assert grading.function_calls(response) == []

    def test_a_real_response_works(self):
        openai_utils = pytest.importorskip("nemo_gym.openai_utils")
        content = [openai_utils.NeMoGymResponseOutputText(text="four", type="output_text", annotations=[])]
        reply = openai_utils.NeMoGymResponseOutputMessage(id="m", content=content)
        response = openai_utils.NeMoGymResponse(
            id="r",
            created_at=0,
            model="m",
            object="response",
            output=[reply],
            parallel_tool_calls=True,
            tool_choice="auto",
            tools=[],
        )
        assert grading.assistant_text(response) == grading.assistant_text(response.model_dump()) == "four"


class TestFunctionCalls:
    def test_arguments_are_parsed(self):
        response = {"output": [call("add", '{"a": 1}'), call("stop", "", "c2")]}
        assert grading.function_calls(response) == [("add", {"a": 1}, None, "c1"), ("stop", {}, None, "c2")]

    @pytest.mark.parametrize(("arguments", "why"), [("{a: 1}", "not valid JSON"), ("[1]", "not a JSON object")])
    def test_arguments_that_cannot_be_parsed_are_an_error_and_not_an_exception(self, arguments, why):
        (found,) = grading.function_calls({"output": [call("add", arguments)]})
        assert found.arguments is None
        assert why in found.error

    def test_deeply_nested_arguments_do_not_blow_the_stack(self):
        (found,) = grading.function_calls({"output": [call("add", "[" * MEGABYTE)]})
        assert found.error


class TestStripThinking:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("<think>hm</think> 42", "42"),
            ("<thinking>hm</thinking>42", "42"),
            ("<THINK>hm</THINK>42", "42"),
            ("a <think>x</think>b<think>y</think> c", "a b c"),
            ("hm, so</think>42", "42"),
            ("42 <think>but wait", "42"),
            ("<think>never ends", ""),
            ("<think>I may write <think> here</think>42", "42"),
            ("<think>a<think>b</think>c</think>42", "42"),
            ("no thinking at all", "no thinking at all"),
        ],
    )
    def test_only_the_answer_is_left(self, text, answer):
        assert grading.strip_thinking(text) == answer

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "a", " ", "<", ">"])))
    def test_no_tag_survives(self, pieces):
        text = grading.strip_thinking(" ".join(pieces))
        assert "think>" not in text
        assert grading.strip_thinking(text) == text


class TestBoxed:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            (r"so \boxed{42}.", "42"),
            (r"\boxed{1} then \boxed{2}", "2"),
            (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
            (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
            (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
            (r"\fbox{ 7 }", "7"),
            (r"\boxed {8}", "8"),
            (r"\boxed{a \boxed{3}}", "3"),
            (r"\boxed{4} and \boxed{cut of", "4"),
            (r"{ \boxed{5}", "5"),
            (r"} \boxed{6}", "6"),
            (r"\\boxed{no} \boxed{}", ""),
            ("plain", None),
            (r"\boxed{open", None),
        ],
    )
    def test_the_last_complete_box_counts(self, text, answer):
        assert grading.boxed(text) == answer

    def test_all_boxes_in_order_and_of_nested_ones_the_innermost(self):
        assert grading.all_boxed(r"\boxed{1} \boxed{a \boxed{b} \boxed{c}} \fbox{{d}}") == ["1", "b", "c", "{d}"]

    def test_boxes_nested_very_deeply_take_linear_time(self):
        assert grading.all_boxed(r"\boxed{" * 100_000 + "}" * 100_000) == [""]

    @settings(max_examples=50, deadline=None)
    @given(
        st.recursive(
            st.text(alphabet="ab1 ", max_size=4), lambda inner: inner.map(lambda s: "{" + s + "}"), max_leaves=5
        )
    )
    def test_balanced_content_comes_back(self, content):
        assert grading.boxed(rf"x \boxed{{{content}}} y") == content.strip()

    def test_literal_boxes_come_from_the_last_one_closed_or_not(self):
        text = r"\boxed{1} \fbox{2} \boxed {3} \boxed{a \boxed{{b}}} \boxed{c"
        assert list(grading.boxes_from_last(text)) == [None, "{b}", r"a \boxed{{b}}", "1"]

    @pytest.mark.parametrize(
        ("text", "content"),
        [
            (r" \text{ A } ", "A"),
            (r"\text{\text{A} }", "A"),
            (r"\text{A} B", r"\text{A} B"),
            (r"\text{A", r"\text{A"),
            (r"\text{}", ""),
            (r"\textbf{A}", r"\textbf{A}"),
        ],
    )
    def test_text_commands_around_everything_are_peeled(self, text, content):
        assert grading.peel_text_commands(text) == content

    def test_text_commands_nested_very_deeply_take_linear_time(self):
        assert grading.peel_text_commands(r"\text{ " * 100_000 + " }" * 100_000) == ""


class TestLabelledAnswer:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("Answer: 42", "42"),
            ("the final ANSWER: Paris\nbye", "Paris"),
            ("**Answer:** 42", "42"),
            ("**Final Answer**: 42", "42"),
            ("**Answer: 42**", "42"),
            ("_Answer_: 42", "42"),
            ("Answer: **B**", "B"),
            ("Answer: `x`", "x"),
            ("The answer is: 7", "7"),
            ("Answer: 1\nAnswer: 2", "2"),
            ("Answer:\n\n42\nmore", "42"),
            ("Answer: 3\nAnswer:", "3"),
            ("Answer: __init__", "__init__"),
            ("Answer: 3.5.", "3.5."),
            ("Answers: 4", None),
            ("no label", None),
            ("Answer:", None),
        ],
    )
    def test_the_last_label_that_has_something_after_it_counts(self, text, answer):
        assert grading.labelled_answer(text) == answer

    def test_the_label_can_be_chosen(self):
        assert grading.labelled_answer("Exact  answer: 1\nAnswer: 2\n", label="Exact Answer") == "1"


class TestTagged:
    @pytest.mark.parametrize(
        ("text", "answer"),
        [
            ("<answer>4</answer>", "4"),
            ("<answer>4</answer><answer> 5 </answer>", "5"),
            ("<answer>4</answer><answer>cut of", "4"),
            ("<ANSWER>4</answer >", "4"),
            ("<answer><answer>4</answer>", "4"),
            ("</answer><answer>", None),
            ("none", None),
        ],
    )
    def test_the_last_complete_pair_counts(self, text, answer):
        assert grading.tagged(text, "answer") == answer


class TestCodeBlock:
    def test_the_last_block_counts(self):
        assert grading.code_block("```python\na = 1\n```\ntext\n```\nb\nc\n```") == "b\nc"

    def test_a_language_can_be_asked_for(self):
        text = "```Python title=x\na = 1\n```\n```bash\nls\n```"
        assert grading.code_block(text, "python") == "a = 1"
        assert grading.code_block(text, ("py", "bash")) == "ls"
        assert grading.code_block(text, "rust") is None

    def test_a_block_that_was_cut_off_does_not_count(self):
        assert grading.code_block("```python\na = 1\n```\n```python\nb = ") == "a = 1"
        assert grading.code_block("```python\na = 1") is None

    def test_a_longer_fence_holds_a_shorter_one(self):
        assert grading.code_block("````\n```\ninner\n```\n````") == "```\ninner\n```"

    def test_tildes_and_windows_lines_are_fine(self):
        assert grading.code_block("~~~py\r\na\r\nb\r\n~~~\r\n") == "a\nb"

    def test_inline_code_is_not_a_block(self):
        assert grading.code_block("```inline```\ntext\n```inline```") is None


class TestNormalizeText:
    @pytest.mark.parametrize(
        ("text", "normal"), [("  The\tCAT. ", "the cat"), ("**“ﬁne”**", "“fine”"), ("Straße", "strasse"), ("", "")]
    )
    def test_case_space_and_edges_do_not_matter(self, text, normal):
        assert grading.normalize_text(text) == normal

    @settings(max_examples=50, deadline=None)
    @given(st.text(max_size=30))
    def test_what_is_normal_stays_as_it_is(self, text):
        once = grading.normalize_text(text)
        assert grading.normalize_text(once) == once


class TestLastNumber:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("3 apples and 4 pears", 4),
            ("the total is $1,234.50.", 1234.5),
            ("-7", -7),
            ("\u22127 degrees", -7),
            ("5-3", 3),
            ("1,2345", 2345),
            ("12,345,678", 12345678),
            ("about .5", 0.5),
            ("6.02e23 or so", 6.02e23),
            ("10%", 10),
            ("model v2 has x3", None),
            ("5 and 1e999", 5),
            ("none", None),
        ],
    )
    def test_the_last_number_counts(self, text, number):
        assert grading.last_number(text) == number

    def test_whole_numbers_stay_exact(self):
        assert grading.last_number("9007199254740993") == 9007199254740993
        assert grading.last_number("9" * 400) == int("9" * 400), "it is beyond all floats"

    def test_all_numbers_come_in_order(self):
        assert grading.all_numbers("2.5, then -1,000 and 1e3, not x7 nor 1e999") == [2.5, -1000, 1000.0]

    @settings(max_examples=50, deadline=None)
    @given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
    def test_a_number_comes_back(self, number):
        assert grading.last_number(f"it is {number} metres") == number


EXTRACTORS = [
    grading.strip_thinking,
    grading.boxed,
    grading.all_boxed,
    grading.labelled_answer,
    lambda text: grading.tagged(text, "answer"),
    grading.code_block,
    grading.normalize_text,
    grading.last_number,
]


@pytest.mark.parametrize("extract", EXTRACTORS)
@settings(max_examples=50, deadline=None)
@given(text=fuzz)
def test_no_text_makes_an_extractor_fail(extract, text):
    extract(text)


@pytest.mark.parametrize("extract", EXTRACTORS)
@pytest.mark.parametrize(
    "piece",
    ["{", "}", "{}", r"\boxed{", r"\boxed ", "\\", "<think>", "</think>", "<answer>", "<answer ", "Answer:", "Answer*",
     "Answer ", "```\n", "`", "1,111", "1", "1.", "-", "1e", " ", "\n"],
)  # fmt: skip
def test_a_long_text_of_anything_takes_linear_time(extract, piece):
    # A quadratic search would need some 10^10 steps here and hit the time limit of the suite.
    extract(piece * (MEGABYTE // 5 // len(piece)))


@pytest.mark.parametrize(
    ("text", "box"),
    [
        (r"\boxed{1} or \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{4}}", "4"),
        (r"\boxed{1} or \boxed{}", None),
        (r"\boxed{1} or \boxed{2", None),
        (r"\fbox{1}", None),
        ("1", None),
    ],
)
def test_the_very_last_box_counts_even_if_it_is_blank_or_never_closed(text, box):
    assert grading.last_box(text) == box

# SPDX-License-Identifier: Apache-2.0
"""What a program did that played a rollout: beside the main line, in its workspace, and on its way out."""

import difflib

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.files.program_work import read_diff
from nemo_gym._viewer.html import program_panel as html_program
from nemo_gym._viewer.html.rollout_page import render_rollout
from tests.viewer.test_html import Page

_DIFF = """\
--- a/kept.py
+++ b/kept.py
@@ -1,2 +1,2 @@
 same
-old
+new
--- a/gone.sql
+++ /dev/null
@@ -1,2 +0,0 @@
--- a comment that looks like a name
-select 1;
--- /dev/null
+++ b/made.txt
@@ -0,0 +1 @@
+text
\\ No newline at end of file
Binary or long file picture.png differs
"""


def say(text: str) -> dict:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.fixture
def played(rollout):
    """A rollout of a program that asked for a title first, and for a summary in the end."""
    title = {"input": "Write a title.", "instructions": "Be brief."}
    history = [{"role": "user", "content": "question 0"}, say("The answer is 4.")]
    return rollout(
        program={"exit_code": 3, "seconds": 1.25, "stdout": "printed", "stderr": "complained"},
        model_calls=4,
        branches=[
            {"begins_after_call": None, "calls": [0], "responses_create_params": title, "output": [say("Sums")]},
            {
                "begins_after_call": 1,
                "calls": [2, 3],
                "responses_create_params": {"input": [*history, {"role": "user", "content": "Sum up."}]},
                "output": [say("It is 4."), {"role": "user", "content": "Shorter."}, say("4.")],
            },
        ],
        artifacts={"log/session.jsonl": '{"a": 1}\n'},
        workspace_diff=_DIFF,
    )


def show(row) -> Page:
    page = Page(render_rollout(read_rollout(row)))
    page.require_safe()
    return page


def test_a_branch_tells_its_calls_and_what_is_new_in_it(played):
    title, summary = read_rollout(played).work.branches
    assert (title.calls, title.begins_after, title.n_shared) == ([1], None, 0)
    assert [block.text for block in title.blocks] == ["Be brief.", "Write a title.", "Sums"]
    assert (summary.calls, summary.begins_after, summary.n_shared) == ([3, 4], 2, 2)
    said = show(played).text
    assert "Beside the main line (2)" in said
    assert "Call 1starts freshWrite a title." in said
    assert "Calls 3, 4continues call 2Sum up." in said
    assert "Its first 2 items are those of the main line.PromptUserSum up.What the model did" in said


def test_what_the_model_thought_may_be_missing_from_the_history_of_a_branch(played):
    thought = {"type": "reasoning", "summary": [{"text": "easy"}]}
    played["response"]["output"].insert(0, thought)
    assert read_rollout(played).work.branches[1].n_shared == 2


def test_branches_are_not_part_of_the_main_line(played):
    one = read_rollout(played)
    assert [block.text for block in one.blocks] == ["question 0", "The answer is 4."]
    assert one.scoring.answer == "The answer is 4."


def test_the_tokens_of_a_branch_are_its_own(played):
    tokens = {"prompt_token_ids": [1], "generation_token_ids": [2, 3], "generation_log_probs": [-0.1, -0.2]}
    played["branches"][0]["output"][0] |= tokens
    assert "Tokens (3)" in show(played).text
    assert read_rollout(played).tokens is None


def test_a_diff_is_told_by_its_line_counts_and_not_by_what_lines_look_like():
    files = read_diff(_DIFF)
    assert [(file.name, file.count("added"), file.count("removed")) for file in files] == [
        ("kept.py", 1, 1),
        ("gone.sql", 0, 2),
        ("made.txt", 1, 0),
        ("picture.png", 0, 0),
    ]


@settings(max_examples=100, deadline=None)
@given(
    *2 * [st.lists(st.sampled_from(["", "--- a", "+++ b", "@@ -1 +1 @@", "-", "+", "\\ No", "x"]), max_size=8)],
)
def test_added_and_removed_lines_are_those_of_the_diff_whatever_they_say(old, new):
    lines = list(difflib.unified_diff(old, new, "a/f", "b/f", lineterm=""))
    files = read_diff("\n".join(lines))
    assert [line for file in files for _, line in file.lines] == lines
    matcher = difflib.SequenceMatcher(None, old, new)
    changes = [code[1:] for code in matcher.get_opcodes() if code[0] != "equal"]
    assert sum(file.count("removed") for file in files) == sum(end - start for start, end, _, _ in changes)
    assert sum(file.count("added") for file in files) == sum(end - start for _, _, start, end in changes)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="ab+-@ ,1\n\\/", max_size=80))
def test_any_text_in_place_of_a_diff_is_shown_whole(text):
    lines = [line for file in read_diff(text) for _, line in file.lines]
    assert "\n".join(lines) == text.removesuffix("\n")


def test_changes_and_the_end_of_the_program_are_shown(played):
    page = show(played)
    said = page.text
    assert "What the program changedkept.py+1−1--- a/kept.py\n" in said
    assert ("class", "ngv-added") in page.attributes
    assert ("class", "ngv-removed") in page.attributes
    assert "exit code 3time 1.2 smodel calls 4The end of stdoutprintedThe end of stderrcomplained" in said
    assert 'Artifacts (1)log/session.jsonl9{"a": 1}\n' in said
    assert "Numbers in the row" not in said


def test_a_program_that_changed_nothing_and_was_ended_says_so(played):
    said = show(played | {"workspace_diff": "", "program": {"exit_code": None}, "branches": [], "artifacts": {}}).text
    assert "No file of the workspace." in said
    assert "exit code none: it was ended" in said
    assert "Beside the main line" not in said


def test_a_failed_program_shows_at_once_what_it_complained_of(played):
    html = render_rollout(read_rollout(played | {"_ng_failure_class": "program_failed"}))
    assert '<details class="ngv-fold" open><summary>The end of stderr' in html
    assert '<details class="ngv-fold"><summary>The end of stdout' in html


def test_long_work_has_only_so_much_room_on_a_page(played, monkeypatch):
    monkeypatch.setattr(html_program, "MOST_TEXT", 300)
    monkeypatch.setattr(html_program, "_MOST_SAID", 12)
    long = played | {"artifacts": {"a": "x" * 10, "b": "y" * 10}}
    long["workspace_diff"] = "--- a/f\n+++ b/f\n@@ -0,0 +1,9 @@\n" + "+line\n" * 9 + "Binary or long file g differs\n"
    said = show(long).text
    assert "6 more lines are in the raw JSON." in said
    assert "1 more files are in the raw JSON." in said
    assert "8 more characters are in the raw JSON." in said
    assert "What was said is in the raw JSON." in said


@pytest.mark.parametrize(
    "fields",
    [
        {"program": "print(1)", "branches": "main", "artifacts": [1], "workspace_diff": None},
        {"program": {"language": "c"}, "branches": ["main"], "artifacts": {"a": [1]}},
        {"branches": [], "artifacts": {}, "workspace_diff": ""},
    ],
)
def test_fields_of_other_environments_with_these_names_stay_theirs(rollout, fields):
    one = read_rollout(rollout(**fields))
    assert one.work is None
    assert dict(one.scoring.verdict) == fields


def test_each_step_of_an_environment_has_its_reward_where_it_was_taken(rollout):
    row = rollout(tools=("move", "move"), steps=3, step_rewards=[0.0, -0.5, 2])
    steps = [(block.title, block.step) for block in read_rollout(row).blocks if block.step]
    assert steps == [("Model asked for move", (1, 0.0)), ("Model asked for move", (2, -0.5)), ("Answer", (3, 2.0))]
    assert "step 2: reward -0.5" in show(row).text


@pytest.mark.parametrize("rewards", [[1.0], [1.0, 2.0, 3.0, 4.0], 5, [None, "1", []]])
def test_rewards_that_fit_no_step_are_put_nowhere(rollout, rewards):
    row = rollout(tools=("move", "move"), step_rewards=rewards)
    assert not any(block.step for block in read_rollout(row).blocks)

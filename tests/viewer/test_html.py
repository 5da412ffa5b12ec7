# SPDX-License-Identifier: Apache-2.0
"""Whatever a model writes is text: pages are parsed as a browser would, and only our own elements are in them."""

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from nemo_gym._viewer.files.file_overview import make_overview
from nemo_gym._viewer.files.one_rollout import read_rollout
from nemo_gym._viewer.files.rollout_comparison import compare_files, compare_rollouts
from nemo_gym._viewer.html import token_panel as tokens
from nemo_gym._viewer.html.elements import (
    SCRIPT,
    STYLE,
    Html,
    draw_bar_chart,
    draw_row_chart,
    element,
    escape_text,
    render_json,
)
from nemo_gym._viewer.html.file_pages import (
    render_file_comparison,
    render_overview,
    render_problems,
    render_rollout_diff,
)
from nemo_gym._viewer.html.rollout_page import render_rollout

_ATTACKS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></div><svg onload=alert(1)>",
    "<!-- comment",
    "[link](javascript:alert(1)) **bold** <b>bold</b>",
    "&lt;script&gt; &amp;",
    "' onmouseover='alert(1)",
]
_OURS = {
    "div", "span", "b", "i", "p", "h1", "h2", "h3", "section", "header", "details", "summary", "pre", "button", "table",
    "thead", "tbody", "tr", "th", "td", "mark", "a", "img", "figure", "figcaption", "svg", "rect", "circle", "line",
    "text", "title", "code",
}  # fmt: skip
_VOID = {"img", "br"}


class Page(HTMLParser):
    """The elements, attributes and text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.pieces: list[str] = []
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == [], "every element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.pieces.append(data)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def require_safe(self) -> None:
        assert set(self.tags) <= _OURS
        assert not [name for name, _ in self.attributes if name.startswith("on")]
        assert not [value for name, value in self.attributes if name == "href" and "javascript" in (value or "")]
        assert all((value or "").startswith("data:image/") for name, value in self.attributes if name == "src")


def hostile(attack: str) -> dict[str, Any]:
    """A row that has the attack everywhere."""
    token = {"prompt_token_ids": [1], "generation_token_ids": [2], "generation_log_probs": [-0.1]}
    part = {"type": "output_text", "text": attack, "logprobs": [{"token": attack, "logprob": -1}]}
    return {
        "_ng_task_index": 0,
        "agent_ref": {"name": attack},
        attack: attack,
        f"number {attack}": 3,
        "nested": {attack: [attack]},
        "responses_create_params": {
            "input": [
                {"role": "system", "content": attack},
                {"role": "user", "content": [{"type": attack, "x": attack}, {"image_url": attack}]},
            ],
            "tools": [{"name": attack, "description": attack}],
            "user": attack,
        },
        "response": {
            "id": attack,
            "model": attack,
            "output": [
                {"type": "reasoning", "summary": [{"text": attack}]},
                {"type": "function_call", "name": attack, "call_id": attack, "arguments": attack, "status": attack},
                {"type": "function_call_output", "call_id": attack, "output": {"x": attack}, "status": attack},
                {"type": attack},
                {"role": "assistant", "content": [part], **token},
            ],
        },
        "ng_model_call_capture": {"calls": [{"model_ref": attack, "error_category": attack}]},
        "_ng_cut_off": attack,
        "_ng_tool_errors": [{"tool": attack, "status": attack, "message": attack}],
        "expected_calls": [{"name": attack, "arguments": {attack: attack}}],
        "expected_answer": attack,
        "_ng_failure_class": attack,
        "_ng_failure": {"message": attack, "boundary": attack},
        "program": {"exit_code": 1, "seconds": 2, "stdout": attack, "stderr": attack},
        "artifacts": {attack: attack},
        "workspace_diff": f"--- a/{attack}\n+++ b/{attack}\n@@ -1 +1 @@ {attack}\n-{attack}\n+{attack}\n{attack}\n",
        "branches": [
            {
                "calls": [attack],
                "begins_after_call": attack,
                "responses_create_params": {"input": attack, "instructions": attack},
                "output": [{"role": "assistant", "content": attack}, {"type": attack}],
            }
        ],
    }


@pytest.mark.parametrize("attack", _ATTACKS)
def test_injected_markup_is_shown_as_text(attack):
    page = Page(render_rollout(read_rollout(hostile(attack))))
    page.require_safe()
    assert page.text.count(attack) >= 24


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=40))
def test_any_text_comes_out_as_it_went_in(content):
    page = Page(element("div", content, title=content))
    assert page.text == content
    assert page.attributes == [("title", content)]
    assert page.tags == ["div"]


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=60))
def test_coloring_json_changes_no_character(content):
    page = Page(render_json(content))
    assert page.text == content
    assert set(page.tags) <= {"span"}


def test_half_a_surrogate_pair_and_nul_do_not_break_a_page():
    assert escape_text("a\ud83d\0b") == "a?\ufffdb"


def test_only_what_is_html_already_is_inserted_as_it_is():
    assert element("p", Html("<b>x</b>"), "<b>") == "<p><b>x</b>&lt;b&gt;</p>"


def test_a_comparison_does_not_paint_a_row_without_a_reward_as_a_bad_one(rollout):
    unscored = {name: value for name, value in rollout().items() if name != "reward"}
    html = render_rollout_diff(compare_rollouts(read_rollout(unscored), read_rollout(rollout())))
    assert '<span class="ngv-reward">not scored</span>' in html


@pytest.mark.parametrize("attack", _ATTACKS)
def test_a_comparison_shows_markup_as_text(attack):
    harmless = hostile("harmless")
    page = Page(render_rollout_diff(compare_rollouts(read_rollout(hostile(attack)), read_rollout(harmless))))
    page.require_safe()
    assert ("id", "ngv-first-difference") in page.attributes


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(_ATTACKS))
def test_an_overview_shows_markup_as_text(write, opened, rollout, attack):
    rows = [
        rollout(0, agent=attack, tools=(attack,), status=attack, **{attack: 1}),
        {**rollout(1, reward=0.25), "_ng_failure_class": attack, "_ng_failure": {"message": attack}},
        rollout(2, reward=0.5),
        b"{broken",
    ]
    write("r.jsonl", rows).unlink()
    index = opened(write("r.jsonl", rows))
    report = make_overview(index)
    for html in (render_overview(report), render_problems(index.problems, 1)):
        Page(html).require_safe()
    assert Page(render_overview(report)).text.count(attack) >= 4
    compared = Page(render_file_comparison(compare_files(index, index), link=lambda match: f"?task={match.task_label}"))
    compared.require_safe()
    assert ("href", "?task=0") in compared.attributes


def test_reasoning_is_folded_and_long_texts_are_cut_where_a_line_ends(rollout):
    row = rollout(text="line\n" * 2000)
    row["response"]["output"].insert(0, {"type": "reasoning", "summary": [{"text": "a thought"}]})
    html = render_rollout(read_rollout(row))
    assert '<details class="ngv-block ngv-reasoning"' in html
    assert "Show 7,000 more characters" in html
    assert Page(html).text.count("line\n") >= 2000


def test_a_text_of_megabytes_is_not_put_on_the_page(rollout):
    html = render_rollout(read_rollout(rollout(text="x" * 6_000_000)))
    assert len(html) < 5_500_000
    assert "5,800,000 more characters are in the raw JSON" in html
    assert "more characters are in the file" in html


def test_a_rollout_says_how_it_ended(rollout, failed):
    assert "reward 1" in render_rollout(read_rollout(rollout(reward=1.0)))
    assert "not scored" in render_rollout(read_rollout(rollout(reward=None)))
    page = Page(render_rollout(read_rollout(failed(kind="timeout", message="too late"))))
    assert "failed: timeout" in page.text
    assert "too late" in page.text
    assert "3 attempts" in page.text


def test_a_rollout_names_its_settings_and_tools(rollout):
    row = rollout()
    row["responses_create_params"] |= {"temperature": 0.5, "tools": [{"name": "add"}]}
    said = Page(render_rollout(read_rollout(row))).text
    assert "Sampling params" in said
    assert "Tools (1)" in said


def test_what_was_not_recorded_is_said_and_is_no_zero(rollout):
    row = rollout()
    del row["response"]["usage"], row["response"]["status"]
    said = Page(render_rollout(read_rollout(row))).text
    assert "tokens in not recorded, tokens out not recorded, finish not recorded, time not recorded" in said
    row["ng_model_call_capture"] = {"calls": [{"latency_total_ms": 12.0}]}
    assert "12 msnot recordednot recorded" in Page(render_rollout(read_rollout(row))).text


def test_a_chart_shows_bars_of_zero_and_of_less():
    page = Page(draw_bar_chart("t", ["a", "b", "c"], [0, 2, -1]))
    heights = [float(value) for name, value in page.attributes if name == "height"]
    assert all(height >= 3 for height in heights)
    assert ("class", "bar zero") in page.attributes
    assert "a: 0" in page.text
    assert ("class", "bar zero") in Page(draw_row_chart("t", {"none": 0, "some": 4})).attributes


def test_tokens_are_colored_and_the_trained_ones_marked(rollout, monkeypatch):
    row = rollout()
    row["response"]["output"][0] |= {
        "prompt_token_ids": list(range(100)),
        "generation_token_ids": [7, 8],
        "generation_log_probs": [-0.01, -5.0],
    }
    html = render_rollout(read_rollout(row))
    assert '<i class="l0 on id" title="token 7 · log-prob -0.010 (99.0%) · trained on">7</i>' in html
    assert '<i class="l4 on id" title="token 8 · log-prob -5.000 (0.7%) · trained on">8</i>' in html
    assert "52 tokens of context" in html
    monkeypatch.setattr(tokens, "TOKEN_LIMIT", 10)
    cut = render_rollout(read_rollout(row))
    assert "92 more tokens are in the raw JSON" in cut


def test_the_style_has_both_themes_and_the_network_is_never_asked():
    assert "light-dark(" in STYLE
    assert "prefers-reduced" in STYLE or "max-width: 640px" in STYLE
    for content in (STYLE, SCRIPT):
        assert "http" not in content.replace("http-equiv", "")
        assert "@import" not in content
        assert "url(" not in content

# SPDX-License-Identifier: Apache-2.0
"""One rollout in a browser, the way to the next, and links to it."""

import json
import re

from playwright.sync_api import expect

from tests.viewer.browser.rows import HOSTILE

TITLE = "#ngp-conversation h1"
# When this one has failed to load, so have all that were there before.
LATER_IMAGE = (
    "() => new Promise((failed) => { const later = new Image(); later.onerror = failed; later.src = 'data:,' })"
)


def test_the_conversation_is_told_in_plain_words(visit):
    page = visit.open("?tab=browse&task=2&sort=rollout&agent=weather_agent")
    page.locator("#ngp-listing tbody tr").first.click()
    expect(page.locator(TITLE)).to_have_text("Task 2 · Rollout 0")
    assert page.locator("#ngp-conversation .ngv-given .ngv-role").all_inner_texts() == ["System prompt", "User"]
    assert page.locator("#ngp-conversation .ngv-made .ngv-role").all_inner_texts() == [
        "Model thought",
        "Model asked for get_weather",
        "Tool answered",
        "Model asked for get_wind",
        "Tool answered",
        "Answer",
    ]
    call = page.locator("#ngp-conversation .ngv-tool_call").first
    assert '{\n  "city": "Cairo",\n  "days": 1,\n  "unit": "celsius"\n}' in call.inner_text()


def test_the_target_stands_beside_the_answer_with_what_the_verifier_said(visit):
    page = visit.open("?tab=rollout&task=2&min=1&sort=rollout")
    why = page.locator("#ngp-conversation .ngv-why")
    target, answer = why.locator(".ngv-side").all()
    expect(target).to_have_text(re.compile(r"Target\s*expected_answer\s*no coat"))
    expect(answer).to_contain_text("No coat needed: it is 20 degrees in Cairo")
    boxes = [side.bounding_box() for side in (target, answer)]
    assert boxes[0]["y"] == boxes[1]["y"]
    expect(why.locator(".ngv-field", has_text="coat")).to_have_text(re.compile(r"coat\s*none"))
    expect(why.locator(".ngv-tile", has_text="format_reward")).to_be_visible()
    page.locator("#ngp-conversation summary", has_text="Task fields").click()
    expect(page.locator("#ngp-conversation .ngv-field", has_text="climate")).to_contain_text("mild")


def test_turns_that_were_given_as_examples_look_given(visit, files):
    page = visit.open(f"?tab=rollout&file={files.number('examples.jsonl')}&row=0")
    examples = page.locator("#ngp-conversation .ngv-given .ngv-assistant")
    expect(examples).to_have_count(1)
    expect(examples).to_contain_text("given, not generated")
    expect(page.locator("#ngp-conversation .ngv-made .ngv-assistant")).to_have_count(1)
    expect(page.locator("#ngp-conversation .ngv-made")).not_to_contain_text("given, not generated")


def test_expected_calls_stand_beside_those_made(visit, files):
    page = visit.open(f"?tab=rollout&file={files.number('examples.jsonl')}&row=0")
    expected, made = page.locator("#ngp-conversation .ngv-sides").first.locator(".ngv-side").all()
    expect(expected.locator(".ngv-call")).to_have_text(
        [re.compile(r"get_weather\s*made"), re.compile(r"get_tide\s*not made like this")]
    )
    expect(made.locator(".ngv-call")).to_have_text(re.compile(r"get_weather\s*as expected"))


def test_crashed_tools_are_marked_where_they_should_have_answered(visit):
    page = visit.open("?tab=rollout&task=5&sort=rollout")
    shown = page.locator("#ngp-conversation")
    expect(shown.locator(".ngv-head")).to_contain_text("1 crashed tool call")
    expect(shown.locator("[role=alert]")).to_contain_text("get_weather crashed with status 500: no such station")
    expect(shown.locator(".ngv-block.crashed")).to_contain_text("Internal Server Error")


def test_the_work_of_a_program_is_shown_beside_what_was_said(visit, files):
    page = visit.open(f"?tab=rollout&file={files.number('programs.jsonl')}&row=0")
    shown = page.locator("#ngp-conversation")
    patch = shown.locator(".ngv-patch")
    expect(patch).to_be_visible()
    added, removed = (patch.locator(f".ngv-{kind}") for kind in ("added", "removed"))
    colors = [one.evaluate("line => getComputedStyle(line).backgroundColor") for one in (added, removed, patch)]
    assert len(set(colors)) == 3
    branch = shown.locator("details", has_text="starts fresh")
    expect(branch.locator(".ngv-made")).to_be_hidden()
    branch.locator("summary").first.click()
    expect(branch.locator(".ngv-made")).to_have_text(re.compile(r"What the model did\s*Answer\s*coat.py"))
    shown.locator("summary", has_text="Artifacts (1)").click()
    kept = shown.locator("summary", has_text=".log/coat.py")
    kept.click()
    expect(kept.locator("xpath=following-sibling::pre")).to_have_text("coat.py")
    for width in (390, 1280):
        visit.resize(width)
        visit.keep(f"program-{width}")
        assert visit.fits(), width


def test_a_rollout_that_was_cut_off_says_so(visit):
    page = visit.open("?tab=rollout&task=2&cut=1")
    expect(page.locator("#ngp-conversation .ngv-head")).to_contain_text("cut off: length")
    expect(page.locator("#ngp-conversation .ngv-facts")).not_to_contain_text("completed")


def test_a_failed_rollout_shows_its_prompt_and_what_was_said_until_then(visit):
    page = visit.open("?tab=overview")
    page.locator("#ngp-numbers").get_by_role("link", name="timeout").click()
    expect(page.locator("#ngp-header h1")).to_have_text("run_failures.jsonl")
    page.locator("#ngp-listing tbody tr").first.click()
    shown = page.locator("#ngp-conversation")
    expect(shown.locator(".ngv-failure")).to_contain_text("no answer within 60 s")
    expect(shown.locator(".ngv-given .ngv-user")).to_contain_text("What is the weather in Cairo")
    made = ["Model thought", "Model asked for get_weather", "Tool answered"]
    assert shown.locator(".ngv-made .ngv-role").all_inner_texts() == made
    expect(shown.locator("tr", has_text="upstream_error")).to_contain_text("not recorded")


def test_reasoning_is_folded_until_it_is_asked_for(visit):
    page = visit.open("?tab=rollout&row=0")
    thought = page.locator("#ngp-conversation details.ngv-reasoning")
    assert thought.get_attribute("open") is None
    thought.locator("summary").click()
    expect(thought.locator(".ngv-text")).to_be_visible()


def test_reward_components_and_the_verifiers_fields_are_shown(visit):
    page = visit.open("?tab=rollout&row=1")
    shown = page.locator("#ngp-conversation")
    expect(shown.locator(".ngv-reward").first).to_have_text(re.compile(r"reward [01]"))
    expect(shown.locator(".ngv-tile", has_text="format_reward")).to_be_visible()
    for name in ("Sampling params", "Tools (1)"):
        expect(shown.locator("summary", has_text=name)).to_be_visible()
    shown.locator("summary", has_text="Sampling params").click()
    expect(shown).to_contain_text('"temperature": 0.7')


def test_each_call_to_the_model_has_its_time_tokens_and_finish_reason(visit):
    page = visit.open("?tab=rollout&task=3")
    calls = page.locator("#ngp-conversation tr", has_text="policy_model")
    expect(calls).to_have_text(
        [
            re.compile(r"1\s*policy_model\s*200\s*completed\s*812 ms\s*95 ms\s*1,180\s*64"),
            re.compile(r"2\s*policy_model\s*200\s*completed\s*1\.2 s\s*96 ms\s*1,392\s*55"),
            re.compile(r"3\s*policy_model\s*503 upstream_error\s*not recorded\s*not recorded"),
        ]
    )


def test_the_raw_row_can_be_copied(visit, files):
    page = visit.open("?tab=rollout&row=2")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#ngp-conversation summary", has_text="Raw JSON").click()
    page.locator("[data-ngv-copy]").click()
    expect(page.locator("[data-ngv-copy]")).to_have_text("Copied")
    copied = json.loads(page.evaluate("navigator.clipboard.readText()"))
    assert copied == json.loads((files.folder / "run.jsonl").read_text().splitlines()[2])


def test_tokens_are_colored_by_log_prob_and_the_trained_ones_marked(visit):
    page = visit.open("?tab=rollout&row=0")
    page.locator("#ngp-conversation summary", has_text="Tokens").click()
    tokens = page.locator("#ngp-conversation .ngv-tokens i")
    expect(tokens.locator("nth=0")).to_have_attribute("title", "token 100 · context")
    trained = page.locator("#ngp-conversation .ngv-tokens i.on")
    assert trained.count() > 10
    expect(trained.first).to_have_attribute("title", re.compile(r"log-prob -0\.010 .* trained on"))
    colors = {trained.nth(at).evaluate("it => getComputedStyle(it).backgroundColor") for at in (0, 8)}
    assert len(colors) == 2
    visit.keep("rollout-tokens")


def test_next_and_previous_go_by_keys_through_the_filtered_list(visit):
    page = visit.open("?tab=rollout&task=4&sort=rollout&agent=weather_agent")
    expect(page.locator(TITLE)).to_have_text("Task 4 · Rollout 0")
    for key, title in (("j", "1"), ("ArrowRight", "2"), ("k", "1"), ("ArrowLeft", "0")):
        page.keyboard.press(key)
        expect(page.locator(TITLE)).to_have_text(f"Task 4 · Rollout {title}")
    expect(page.locator("#ngp-bar")).to_contain_text("1 of 4")
    page.keyboard.press("k")
    expect(page.locator("#ngp-bar [aria-disabled]")).to_contain_text("Previous")


def test_keys_that_are_pressed_faster_than_answers_come_all_count(visit):
    page = visit.open("?tab=rollout&task=4&sort=rollout&agent=weather_agent")
    for _ in range(3):
        page.keyboard.press("j")
    expect(page.locator(TITLE)).to_have_text("Task 4 · Rollout 3")
    expect(page.locator("#ngp-bar")).to_contain_text("4 of 4")


def test_keys_that_are_typed_into_a_field_stay_there(visit):
    page = visit.open("?tab=browse")
    page.keyboard.press("/")
    page.keyboard.type("jk")
    expect(page.get_by_label("Search")).to_have_value("jk")
    expect(page.locator("#ngp-listing")).to_contain_text("0 rollouts found")


def test_a_link_opens_the_same_rollout_and_the_way_back_is_kept(visit):
    page = visit.open("?tab=browse&q=Kyoto&sort=-length")
    page.locator("#ngp-listing tbody tr").nth(2).click()
    expect(page.locator("#ngp-bar")).to_contain_text("3 of 8")
    title, address = page.locator(TITLE).inner_text(), page.url
    other = page.context.new_page()
    other.goto(address)
    expect(other.locator(TITLE)).to_have_text(title)
    expect(other.locator("#ngp-bar")).to_contain_text("3 of 8")
    other.close()
    page.go_back()
    expect(page.locator("#ngp-listing .ngp-found")).to_contain_text("8 rollouts found")


def test_a_link_to_what_is_not_there_opens_what_is(visit):
    page = visit.open("?tab=rollout&file=99&row=123456&with=7.7&sort=nonsense")
    expect(page.locator(TITLE)).to_be_visible()


def test_what_models_write_is_text_wherever_it_is_shown(visit, files):
    number = files.number("hostile.jsonl")
    for tab in ("overview", "browse", "browse&group=1", "rollout&row=0", f"compare&row=0&with={number}.1"):
        page = visit.open(f"?tab={tab}&file={number}")
        for summary in page.locator("#ngp-rollout summary").filter(visible=True).all():
            summary.click()
        page.evaluate(LATER_IMAGE)
        assert page.evaluate("window.pwned") is None
        assert page.locator("main img, main script, main a[href^=javascript]").count() == 0
    visit.open(f"?tab=rollout&row=0&file={number}")
    for role in ("user", "assistant"):
        in_main_line_and_branch = visit.page.locator(f"#ngp-conversation .ngv-{role} .ngv-text")
        expect(in_main_line_and_branch).to_have_text([HOSTILE, HOSTILE])
    expect(visit.page.locator("#ngp-conversation .ngv-removed")).to_have_text(f"-{HOSTILE}")
    expect(visit.page.locator("#ngp-conversation strong")).to_have_count(0)
    visit.keep("rollout-hostile")

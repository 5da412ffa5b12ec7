# SPDX-License-Identifier: Apache-2.0
"""Where the tokens of a rollout first diverge, and what becomes of the rollouts of each model."""

import pytest

from nemo_gym._training.alignment import Turn
from nemo_gym._training.drift import find_divergence, report_drift
from tests.training.rollout_rows import make_failure, make_row, write_rows


def turn(prompt_ids, generated_ids):
    return Turn(prompt_ids, generated_ids, [0.0] * len(generated_ids), "response")


@pytest.mark.parametrize(
    ("turns", "place"),
    [
        ([turn([1, 2], [3]), turn([1, 9, 3], [4])], (1, 1, "prompt")),
        ([turn([1, 2], [3, 4]), turn([1, 2, 3, 9], [5])], (1, 3, "generated")),
        ([turn([1], [2]), turn([1, 2, 3], [4]), turn([1, 2, 9, 4], [5])], (2, 2, "environment")),
        ([turn([1, 2], [3, 4]), turn([1, 2], [5])], (1, 2, "generated")),
    ],
)
def test_the_first_divergence_is_found_with_what_it_hit(turns, place):
    found = find_divergence(turns)
    assert (found.turn, found.position, found.region) == place


def test_turns_that_continue_each_other_do_not_diverge():
    assert find_divergence([turn([1], [2]), turn([1, 2, 3], [4])]) is None
    assert find_divergence([]) is None


def test_every_rollout_of_a_model_is_counted_once(tmp_path):
    versions = make_row(0, 5)
    for version, item in enumerate(item for item in versions["response"]["output"] if "prompt_token_ids" in item):
        item["policy_version"] = 3 + version
    broken = make_row(0, 4)
    broken["response"]["output"][1]["generation_log_probs"] = []
    rows = [
        make_row(0, 0),
        make_row(0, 1, history=[1, 2, 3, 45, 6]),
        make_row(0, 2, history=[1, 2, 99]),
        make_row(0, 3, with_tokens=False),
        broken,
        versions,
        make_failure(0, 6),
    ]
    texts = {4: "4", 5: "5", 45: "45"}
    decode = lambda ids: "".join(texts.get(one, f"<{one}>") for one in ids)  # noqa: E731
    other, policy = report_drift([write_rows(tmp_path / "r.jsonl", rows)], decode)
    assert (other.model, other.failed, other.rollouts) == ("(not said)", 1, 1)
    facts = policy.as_json()
    assert {name: facts[name] for name in ("rollouts", "clean", "realigned", "forked", "without_tokens")} == {
        "rollouts": 6,
        "clean": 2,
        "realigned": 1,
        "forked": 1,
        "without_tokens": 1,
    }
    assert facts["invalid"] == {"turn 0 has 2 tokens, but 0 log-probs": 1}
    assert facts["trainable_tokens"] == 4 * 5
    assert facts["first_divergence"]["turns"] == {"1": 2}
    assert facts["first_divergence"]["regions"] == {"generated": 1, "prompt": 1}
    example = facts["first_divergence"]["example"]
    assert (example["rollout_index"], example["before_text"], example["read_text"]) == (
        1,
        "<1><2><3>45",
        "<1><2><3>45<6>",
    )
    assert (facts["policy_versions"], facts["straddling"]) == ({"3": 1}, 1)


def test_rollouts_that_were_asked_with_other_settings_of_the_template_are_counted_apart(tmp_path):
    thoughtless = make_row(0, 1, history=[1, 2, 99])
    thoughtless["responses_create_params"]["metadata"] = {"chat_template_kwargs": '{"enable_thinking": false}'}
    plain, other = report_drift([write_rows(tmp_path / "r.jsonl", [thoughtless, make_row(0, 0)])])
    assert (plain.model, plain.template, plain.clean, plain.forked) == ("policy", None, 1, 0)
    assert (other.model, other.template, other.forked) == ("policy", '{"enable_thinking": false}', 1)

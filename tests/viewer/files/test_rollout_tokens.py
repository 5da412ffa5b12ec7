# SPDX-License-Identifier: Apache-2.0
from nemo_gym._viewer.files.rollout_tokens import read_tokens


def generated(prompt: list[int], ids: list[int], logprobs: list[float] | None = None, **more) -> dict:
    logprobs = [-0.5] * len(ids) if logprobs is None else logprobs
    return {"prompt_token_ids": prompt, "generation_token_ids": ids, "generation_log_probs": logprobs, **more}


def test_turns_become_one_sequence_in_which_the_generated_is_trained():
    view = read_tokens([generated([1, 2], [3]), {"type": "function_call_output"}, generated([1, 2, 3, 4, 5], [6, 7])])
    assert [(token.id, token.trained) for token in view.tokens] == [
        (1, False),
        (2, False),
        (3, True),
        (4, False),
        (5, False),
        (6, True),
        (7, True),
    ]
    assert (view.n_trained, len(view.tokens), view.breaks) == (3, 7, [])


def test_a_prompt_that_does_not_continue_is_a_break():
    view = read_tokens([generated([1], [2]), generated([1, 9], [3])])
    assert view.breaks == [2]
    assert [token.id for token in view.tokens] == [1, 2, 1, 9, 3]


def test_texts_are_taken_from_the_reply_where_they_fit():
    logprobs = [{"token": "Hel", "logprob": -0.1}, {"token": "lo", "logprob": -0.2}]
    content = [{"type": "output_text", "text": "Hello", "logprobs": logprobs}]
    fitting = read_tokens([generated([], [1, 2], content=content)])
    assert [(token.id, token.text, token.logprob) for token in fitting.tokens] == [(1, "Hel", -0.5), (2, "lo", -0.5)]
    other = read_tokens([generated([], [1, 2, 3], content=content)])
    assert [token.text for token in other.tokens] == [None, None, None]
    alone = read_tokens([{"content": content}])
    assert [(token.id, token.text, token.logprob) for token in alone.tokens] == [
        (None, "Hel", -0.1),
        (None, "lo", -0.2),
    ]


def test_missing_log_probs_are_none():
    view = read_tokens([generated([], [1, 2], [-0.5])])
    assert [token.logprob for token in view.tokens] == [-0.5, None]


def test_without_tokens_there_is_no_view():
    assert read_tokens([{"type": "message"}, None, {"generation_token_ids": "x"}]) is None

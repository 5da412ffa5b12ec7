# SPDX-License-Identifier: Apache-2.0
"""What is generated is what the model would say, token by token, whoever else is in the batch."""

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="needs torch: `make train-test` has an environment with it")

from responses_api_models.transformers_model.engine import Generation, generate  # noqa: E402

LONG, SHORT = [5, 6, 7, 8, 9, 10, 11], [20, 21]


def run(tiny, *batch):
    generate(tiny.model, [1], tiny.tokenizer.decode, batch)
    return batch


def score(tiny, prompt, said):
    """The log-probs of `said` after `prompt`, from one ordinary forward pass."""
    with torch.no_grad():
        logits = tiny.model(input_ids=torch.tensor([[*prompt, *said]])).logits[0]
    log_probs = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return log_probs.gather(-1, torch.tensor(said)[:, None])[:, 0].tolist()


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
def test_log_probs_are_those_of_a_forward_pass_whatever_the_sampling(tiny, temperature):
    batch = [Generation(prompt, 12, seed=n, temperature=temperature) for n, prompt in enumerate([LONG, SHORT, LONG])]
    for one in run(tiny, *batch):
        assert one.log_probs == pytest.approx(score(tiny, one.prompt_ids, one.token_ids), abs=1e-4)


def test_a_reply_does_not_depend_on_the_others_of_its_batch(tiny):
    alone = run(tiny, Generation(SHORT, 16, seed=3))[0]
    among = run(tiny, Generation(LONG, 30, seed=1), Generation(SHORT, 16, seed=3), Generation(SHORT, 4, seed=4))[1]
    assert alone.token_ids == among.token_ids


def test_a_seed_repeats_a_reply_and_another_seed_does_not(tiny):
    same, again, other = run(tiny, *(Generation(SHORT, 16, seed=seed) for seed in (7, 7, 8)))
    assert same.token_ids == again.token_ids != other.token_ids


def test_temperature_zero_takes_the_likeliest_token(tiny):
    one = run(tiny, Generation(SHORT, 5, seed=0, temperature=0.0))[0]
    with torch.no_grad():
        first = tiny.model(input_ids=torch.tensor([SHORT])).logits[0, -1].argmax().item()
    assert one.token_ids[0] == first


def test_top_k_and_top_p_leave_out_unlikely_tokens(tiny):
    with torch.no_grad():
        likeliest = tiny.model(input_ids=torch.tensor([SHORT])).logits[0, -1].argsort(descending=True).tolist()
    by_k = {one.token_ids[0] for one in run(tiny, *(Generation(SHORT, 1, seed=n, top_k=3) for n in range(200)))}
    by_p = {one.token_ids[0] for one in run(tiny, *(Generation(SHORT, 1, seed=n, top_p=1e-6) for n in range(50)))}
    assert by_k == set(likeliest[:3])
    assert by_p == {likeliest[0]}


def test_tokens_are_drawn_as_often_as_the_model_says(tiny):
    drawn = Counter(one.token_ids[0] for one in run(tiny, *(Generation(LONG, 1, seed=n) for n in range(4000))))
    with torch.no_grad():
        wanted = tiny.model(input_ids=torch.tensor([LONG])).logits[0, -1].softmax(-1)
    for token, probability in enumerate(wanted.tolist()):
        assert drawn[token] / 4000 == pytest.approx(probability, abs=5 * (probability / 4000) ** 0.5 + 0.002)


def test_a_reply_ends_at_its_limit_its_stop_string_or_the_end_token(tiny):
    limit, *others = run(tiny, Generation(LONG, 3, seed=0), *(Generation(LONG, 400, seed=n) for n in range(20)))
    assert (limit.ended_by, len(limit.token_ids)) == ("limit", 3)
    ended = next(one for one in others if one.ended_by == "eos")
    assert ended.token_ids[-1] == 1
    assert 1 not in ended.token_ids[:-1]
    word = tiny.tokenizer.decode(limit.token_ids[1:2])
    stopped = run(tiny, Generation(LONG, 50, seed=0, stop=[word]))[0]
    assert (stopped.ended_by, stopped.stop_string, stopped.token_ids) == ("word", word, limit.token_ids[:2])


def test_what_nobody_wants_any_more_ends_at_its_next_token(tiny):
    gone, wanted = Generation(LONG, 300, seed=0), Generation(SHORT, 6, seed=1, top_k=1)
    gone.is_cancelled.set()
    run(tiny, gone, wanted)
    assert len(gone.token_ids) == 1
    assert wanted.ended_by


def test_the_model_keeps_its_mode_and_its_weights_need_gradients(tiny):
    for training in (True, False):
        tiny.model.train(training)
        run(tiny, Generation(SHORT, 2, seed=0))
        assert tiny.model.training is training
    tiny.model.train()
    tiny.model(input_ids=torch.tensor([SHORT])).logits.sum().backward()
    assert all(weight.grad is not None for weight in tiny.model.parameters())
    tiny.model.zero_grad()

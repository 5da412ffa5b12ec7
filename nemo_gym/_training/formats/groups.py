# SPDX-License-Identifier: Apache-2.0
"""Formats with a record for every group of rollouts: SkyRL, Atropos, and pairs for preference training."""

from collections.abc import Iterator, Sequence

from nemo_gym._training.alignment import Branch
from nemo_gym._training.chat_messages import NotExpressible, read_conversation
from nemo_gym._training.formats.sample import GroupSamples, Record, Sample

_NOT_TRAINED = -100
_NO_LOG_PROB = 1.0


def build_skyrl(group: GroupSamples) -> Iterator[Record]:
    """Yield SkyRL's `GeneratorOutput`: a list for each field, with an entry for every branch.

    Branches of one rollout are the steps of one trajectory; the one with its end comes last.
    """
    entries = [
        (sample, number, branch, number == last)
        for sample in group.samples
        for last in [_find_main(sample)]
        for number, branch in sorted(sample.iter_branches(), key=lambda numbered: numbered[0] == last)
    ]
    yield {
        "prompt_token_ids": [branch.prompt_ids for _, _, branch, _ in entries],
        "response_ids": [branch.completion_ids for _, _, branch, _ in entries],
        "rewards": [sample.reward for sample, _, _, _ in entries],
        "loss_masks": [branch.mask for _, _, branch, _ in entries],
        "stop_reasons": ["length" if sample.rollout.cut_off == "length" else "stop" for sample, _, _, _ in entries],
        "rollout_metrics": group.samples[0].rollout.group_facts,
        "rollout_logprobs": [branch.log_probs for _, _, branch, _ in entries],
        "trajectory_ids": [
            {
                "instance_id": "/".join(str(part) for part in sample.rollout.group if part is not None),
                "repetition_id": sample.rollout.rollout_index,
            }
            for sample, _, _, _ in entries
        ],
        "is_last_step": [is_last for _, _, _, is_last in entries] if len(entries) > len(group.samples) else None,
        "env_metrics": [
            {**sample.rollout.reward_components, **sample.describe(number)} for sample, number, _, _ in entries
        ],
    }


def build_atropos(group: GroupSamples) -> Iterator[Record]:
    """Yield the `ScoredDataGroup` to post to Atropos, with a sequence for every branch."""
    entries = [(sample, number, branch) for sample in group.samples for number, branch in sample.iter_branches()]
    labeled = [_label_tokens(sample, branch) for sample, _, branch in entries]
    yield {
        "tokens": [branch.ids for _, _, branch in entries],
        "masks": [labels for labels, _ in labeled],
        "scores": [sample.reward for sample, _, _ in entries],
        "inference_logprobs": [log_probs for _, log_probs in labeled],
        "overrides": [sample.describe(number) for sample, number, _ in entries],
        "group_overrides": group.samples[0].rollout.group_facts,
    }


def pair_samples(samples: Sequence[Sample], margin: float, min_reward: float | None) -> Iterator[tuple[Sample, Sample]]:
    """Yield pairs of a better and a worse rollout: the best with the worst, then the second best, and so on.

    The rewards of a pair differ by at least `margin` and are never equal; each rollout is in at most one pair.
    """
    ordered = sorted(samples, key=lambda sample: (-sample.reward, sample.rollout.rollout_index))
    for better, worse in zip(ordered, ordered[::-1], strict=True):
        difference = better.reward - worse.reward
        if difference <= 0 or difference < margin or (min_reward is not None and better.reward < min_reward):
            return
        yield better, worse


def build_pair(better: Sample, worse: Sample) -> Record:
    """Return a TRL preference: prompt, chosen and rejected, as messages."""
    chosen = read_conversation(better.row, parse_arguments=True)
    rejected = read_conversation(worse.row, parse_arguments=True)
    if chosen.given != rejected.given or chosen.tools != rejected.tools:
        raise NotExpressible("rollouts of one task with different prompts")
    first = better.rollout
    return {
        "prompt": chosen.given,
        "chosen": chosen.said,
        "rejected": rejected.said,
        **({"tools": chosen.tools} if chosen.tools else {}),
        "chosen_reward": better.reward,
        "rejected_reward": worse.reward,
        "chosen_rollout_index": better.rollout.rollout_index,
        "rejected_rollout_index": worse.rollout.rollout_index,
        "task_index": first.task_index,
        "agent": first.agent,
        **first.group_facts,
    }


def _find_main(sample: Sample) -> int | None:
    """Return the number of the branch that ends with the rollout's answer, else of the last one with tokens."""
    last = None
    for number, branch in sample.iter_branches():
        last = number
        if branch is sample.rollout.main_branch:
            break
    return last


def _label_tokens(sample: Sample, branch: Branch) -> tuple[list[int], list[float]]:
    """Return labels and log-probs for all ids of a branch, with Atropos's values for untrained ones."""
    size = len(branch.prompt_ids) + len(branch.completion_ids)
    start = len(branch.prompt_ids)
    labels = [_NOT_TRAINED] * size
    log_probs = [_NO_LOG_PROB] * size
    for low, high in branch.find_generated(sample.rollout.turns):
        labels[start + low : start + high] = branch.completion_ids[low:high]
        log_probs[start + low : start + high] = branch.log_probs[low:high]
    return labels, log_probs

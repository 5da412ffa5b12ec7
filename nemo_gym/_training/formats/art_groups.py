# SPDX-License-Identifier: Apache-2.0
"""ART's trajectories and groups, for export and for rollouts that are played live.

A rollout is one trajectory: ART gives each of its trajectories one advantage and spreads its weight over all of its
histories, so the branches of a forked rollout are histories, not trajectories of their own. ART trains on choices;
messages are for readers.
"""

from collections.abc import Iterator, Mapping

from nemo_gym._training.alignment import Branch
from nemo_gym._training.chat_messages import Message, read_conversation
from nemo_gym._training.formats.sample import GroupSamples, Record, Sample
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.json_shapes import as_mapping
from nemo_gym._util.row_keys import FAILURE_KEY, NG_FAILURE_CLASS_KEY


def build_art(group: GroupSamples) -> Iterator[Record]:
    """Yield ART's `TrajectoryGroup`: a trajectory for every rollout, an exception for every failure."""
    first = group.samples[0].rollout
    yield {
        "trajectories": [build_trajectory(sample) for sample in group.samples],
        "exceptions": [_describe_failure(row) for row in group.failures],
        "metadata": {"task_index": first.task_index, "agent": first.agent},
        "metrics": first.group_facts,
    }


def build_trajectory(sample: Sample) -> Record:
    """Return ART's `Trajectory` of a rollout; the branch that ends with the answer comes first."""
    rollout = sample.rollout
    conversation = read_conversation(sample.row, rollout.turns)
    said = list(zip(conversation.said, conversation.turns, strict=True))
    if not set(range(len(rollout.turns))) <= set(conversation.turns):
        # The tokens stand beside the response, which does not say which of them belong to which message.
        said = [({"role": "assistant", "content": ""}, number) for number in range(len(rollout.turns))]
    choices = _build_choices(rollout, {number: message for message, number in said if number is not None})

    def list_history(branch: Branch | None, *, is_main: bool = False) -> list[Record]:
        """Return the prompt and the choices of a branch, in the main one with what others said in between."""
        history = [*conversation.given]
        for message, number in said:
            if number is None and is_main:
                history.append(message)
            elif branch is not None and number in branch.turns:
                history.append(choices[number])
        return history

    main = rollout.main_branch
    tools = conversation.tools or None
    first, last = rollout.policy_versions
    return {
        "messages_and_choices": list_history(main, is_main=True),
        "tools": tools,
        "additional_histories": [
            {"messages_and_choices": list_history(branch), "tools": tools}
            for _, branch in sample.iter_branches()
            if branch is not main
        ],
        "reward": sample.reward,
        "initial_policy_version": first,
        "final_policy_version": last,
        "metrics": {**rollout.reward_components, "turns": len(rollout.turns), "branches": len(rollout.branches)},
        "metadata": {name: value for name, value in sample.describe().items() if value is not None},
    }


def _build_choices(rollout: TrainableRollout, messages: Mapping[int, Message]) -> dict[int, Record]:
    """Return the `Choice` of every turn; its prompt is made of the tokens of its branch, as the trainer joins them."""
    choices = {}
    for branch in rollout.branches:
        for number, (start, _) in zip(branch.turns, branch.find_generated(rollout.turns), strict=True):
            turn = rollout.turns[number]
            finish_reason = "stop"
            if messages[number].get("tool_calls"):
                finish_reason = "tool_calls"
            if rollout.cut_off == "length" and turn is rollout.turns[-1]:
                finish_reason = "length"  # ART looks for an end of turn only in replies that stopped
            choices[number] = {
                "finish_reason": finish_reason,
                "index": 0,
                "message": messages[number],
                "prompt_token_ids": branch.prompt_ids + branch.completion_ids[:start],
                "token_ids": turn.generated_ids,
                "compact_logprobs": turn.log_probs,
            }
    return choices


def _describe_failure(row: Record) -> Record:
    failure = as_mapping(row.get(FAILURE_KEY))
    kind = failure.get("kind") or row.get(NG_FAILURE_CLASS_KEY) or "no_reward"
    return {"type": str(kind), "message": str(failure.get("message") or ""), "traceback": ""}

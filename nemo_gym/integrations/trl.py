# SPDX-License-Identifier: Apache-2.0
"""Train with Hugging Face TRL on rollouts of our environments. Made for TRL 1.16.

    tasks = read_tasks("train.jsonl", agent="first_steps_simple_agent")
    trainer = GRPOTrainer(
        model=model,
        args=GRPOConfig(...),
        train_dataset=make_dataset(tasks),
        reward_funcs=reward_func,
        rollout_func=rollout_func(tasks),
    )

TRL asks for the rollouts of a batch of prompts, one for each entry, and takes the exact tokens that were sampled. A
rollout that failed is played again, within bounds. If it fails still, its entry is masked as a whole and has no reward:
`reward_func` returns None for it, which TRL leaves out of the group's baseline and gives no advantage. For the
asynchronous trainer there is `RolloutWorker` in `nemo_gym.integrations.trl_async`.
"""

import importlib.metadata
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nemo_gym._training.formats.branches import build_trl_tokens
from nemo_gym._util.json_shapes import as_int, as_list, as_mapping
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.global_config import RESPONSES_CREATE_PARAMS_KEY_NAME
from nemo_gym.integrations.playing import Task, make_row, open_rollout_loop, play_rows, read_tasks as read_tasks
from nemo_gym.trajectories import Branch, TrainableRollout

if TYPE_CHECKING:
    from datasets import Dataset

LOG = logging.getLogger(__name__)
MADE_FOR = "1.16"
TASK_KEY = "gym_task"
"""The key of a message that names its task: prompts are all that TRL hands to a rollout_func."""
REWARD_KEY = "gym_reward"
FAILURE_KEY = "gym_failure"
DRIFT_KEY = "gym_drift"
"""What reward functions are given of a rollout: its reward (None if it has none to train on), the kind of its failure,
and whether its turns extend each other token by token."""


class CannotTrain(GymError):
    """Rollouts that hold nothing a trainer could learn from."""


def require_trl() -> None:
    """Raise unless TRL is installed; warn if it is another version than the one this module was made for."""
    try:
        found = importlib.metadata.version("trl")
    except importlib.metadata.PackageNotFoundError as error:
        raise CannotTrain(
            f"TRL is not installed; this was made for TRL {MADE_FOR}.\nhint: pip install 'trl=={MADE_FOR}.*'"
        ) from error
    if found.split(".")[:2] != MADE_FOR.split("."):
        LOG.warning("this was made for TRL %s and may not suit TRL %s, which is installed", MADE_FOR, found)


def make_dataset(tasks: Sequence[Task]) -> "Dataset":
    """Return the dataset of a trainer: one prompt for each task, by which `rollout_func` knows the task again."""
    from datasets import Dataset

    return Dataset.from_list([{"prompt": make_prompt(task, number)} for number, task in enumerate(tasks)])


def make_prompt(task: Task, number: int) -> list[dict[str, Any]]:
    """Return the prompt of a task, which names it, for the trainer's dataset and logs."""
    asked = (task.get(RESPONSES_CREATE_PARAMS_KEY_NAME) or {}).get("input") or ""
    items = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    return [
        {"role": item.get("role", "user"), "content": _write_text(item.get("content")), TASK_KEY: number}
        for item in items
    ]


def _write_text(content: Any) -> str:
    """Return the words of a message for the trainer's logs; the model is asked with the task itself."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def rollout_func(
    tasks: Sequence[Task],
    *,
    head_server_config: BaseServerConfig | None = None,
    create_params: Mapping[str, Any] | None = None,
    attempts: int = 2,
) -> "RolloutFunc":
    """Return what TRL calls for rollouts of `tasks`, the ones that `make_dataset` was given.

    `head_server_config`: where the head server of the running servers is; None: where the config of this process says.
    `create_params` are sent with every rollout. What they leave open comes from the trainer's arguments: temperature,
    top_p, and the longest completion. `attempts`: how often a rollout that fails is played in all.
    """
    require_trl()
    return RolloutFunc(tasks, head_server_config, create_params or {}, attempts)


class RolloutFunc:
    """Plays the prompts of a batch and returns their tokens."""

    def __init__(
        self,
        tasks: Sequence[Task],
        head_server_config: BaseServerConfig | None,
        create_params: Mapping[str, Any],
        attempts: int,
    ) -> None:
        self._tasks = tasks
        self._head_server_config = head_server_config
        self._create_params = create_params
        self._attempts = attempts
        self._loop = open_rollout_loop("trl-rollouts")

    def close(self) -> None:
        """End the thread in which rollouts are played."""
        self._loop.close()

    def __call__(self, prompts: Sequence[Any], trainer: Any) -> dict[str, list[Any]]:
        """Play every prompt once; prompts that occur several times are attempts at the same task."""
        sampling = {
            "temperature": trainer.args.temperature,
            "top_p": trainer.args.top_p,
            "max_output_tokens": trainer.args.max_completion_length,
            **self._create_params,
        }
        seen = Counter[int]()
        rows = list[Task]()
        for prompt in prompts:
            number = _read_task_number(prompt, len(self._tasks))
            rows.append(make_row(self._tasks[number], (number, seen[number]), sampling))
            seen[number] += 1
        tokenizer = getattr(trainer.processing_class, "tokenizer", trainer.processing_class)
        playing = play_rows(
            rows, head_server_config=self._head_server_config, attempts=self._attempts, decode=tokenizer.decode
        )
        return make_entries(self._loop.submit(playing).result(), tokenizer.eos_token_id)


def _read_task_number(prompt: Any, count: int) -> int:
    first = next(iter(as_list(prompt)), None)
    number = as_int(as_mapping(first).get(TASK_KEY))
    if number is not None and 0 <= number < count:
        return number
    raise CannotTrain(
        f"a prompt of the trainer belongs to none of the {count} tasks: {str(prompt)[:200]!r}.\n"
        "hint: give the trainer `train_dataset=make_dataset(tasks)`, with the tasks that `rollout_func` was given"
    )


def make_entries(rollouts: Sequence[TrainableRollout], filler_id: int) -> dict[str, list[Any]]:
    """Return what a rollout_func returns: one entry for each rollout, in their order.

    A rollout that must not be trained on gets one token, `filler_id`, that is masked, and None for its reward.
    """
    usable = [_find_trainable(rollout) for rollout in rollouts]
    if not any(usable):
        _raise_nothing_to_train_on(rollouts)
    filler = Branch([filler_id], [filler_id], [0], [0.0])
    tokens = [build_trl_tokens(branch or filler) for branch in usable]
    return {
        **{name: [each[name] for each in tokens] for name in tokens[0]},
        REWARD_KEY: [rollout.reward if branch else None for rollout, branch in zip(rollouts, usable, strict=True)],
        FAILURE_KEY: [rollout.failure or rollout.invalid for rollout in rollouts],
        DRIFT_KEY: [rollout.drift for rollout in rollouts],
    }


def _find_trainable(rollout: TrainableRollout) -> Branch | None:
    """Return the tokens to train on, those that end with the answer; None if there are none."""
    branch = rollout.main_branch
    if not rollout.is_valid or branch is None or not any(branch.mask):
        return None
    return branch


def _raise_nothing_to_train_on(rollouts: Sequence[TrainableRollout]) -> None:
    reasons = Counter(rollout.failure or rollout.invalid or "no token ids in the result" for rollout in rollouts)
    listed = "\n".join(f"{count} × {reason}" for reason, count in reasons.most_common())
    raise CannotTrain(
        f"none of {len(rollouts)} rollouts can be trained on:\n{listed}\n"
        "hint: the model server has to return tokens (`return_token_id_information: true` in its config); as for "
        "failures, see what the servers have logged, or play the same tasks with `gym eval run`"
    )


def reward_func(*, gym_reward: list[float | None], **given: Any) -> list[float | None]:
    """Return the environment's rewards; None where a rollout has none to train on.

    TRL leaves None out of the baseline only if every reward function returns it: others of yours have to return None
    wherever `gym_reward` is None.
    """
    log_metric: Callable[[str, float], None] | None = given.get("log_metric")
    if log_metric is not None:
        log_metric("gym/failed", sum(reward is None for reward in gym_reward) / len(gym_reward))
        drifts = given.get(DRIFT_KEY) or []
        log_metric("gym/forked", sum(drift == "forked" for drift in drifts) / len(gym_reward))
    return gym_reward

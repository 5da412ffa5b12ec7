# SPDX-License-Identifier: Apache-2.0
"""A rollout worker for TRL's asynchronous GRPO trainer, which trains while rollouts go on. Made for TRL 1.16.

    worker = RolloutWorker(tasks, num_generations=8)
    trainer = AsyncGRPOTrainer(model=..., args=..., train_dataset=make_dataset(tasks), reward_funcs=[],
                               rollout_worker=worker)

The servers run already, and their model server asks the engine to which the trainer sends its weights. Advantages are
computed here, over the scored members of a group alone: a rollout that failed becomes no sample and no part of the
baseline. A rollout whose history was rewritten has several branches; each is a sample with the same advantage.
"""

import asyncio
import logging
import queue
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from statistics import fmean, pstdev
from typing import Any

from nemo_gym._util.off_the_loop import LoopThread
from nemo_gym.config_types import BaseServerConfig
from nemo_gym.errors import GymError
from nemo_gym.integrations.playing import Task, make_row, open_rollout_loop, play_rows
from nemo_gym.integrations.trl import make_prompt, require_trl
from nemo_gym.policy_versions import StalenessGate, announce
from nemo_gym.trajectories import Decode, TrainableRollout

LOG = logging.getLogger(__name__)
_FULL_PAUSE_S = 0.05
_EPSILON = 1e-8
"""Added to the spread of a group's rewards, as TRL does."""


class WorkerFailed(GymError):
    """The worker has stopped producing rollouts."""


class RolloutWorker:
    """Plays group after group of rollouts and queues them, scored, for the trainer: TRL's `RolloutWorkerProtocol`."""

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        num_generations: int = 8,
        groups_at_once: int = 8,
        queue_size: int = 256,
        head_server_config: BaseServerConfig | None = None,
        create_params: Mapping[str, Any] | None = None,
        attempts: int = 2,
        decode: Decode | None = None,
        gate: StalenessGate | None = None,
    ) -> None:
        """`num_generations`: rollouts of a group; `groups_at_once`: groups that are played at the same time.

        `queue_size`: samples that wait for the trainer; when there are so many, no new group begins. `decode` turns
        token ids into text, so that a history that was only tokenized anew is told from one that was rewritten. `gate`
        holds groups back that would be too old when they are trained on, where TRL would drop them afterwards.
        """
        require_trl()
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[dict[str, Any]] = queue.Queue(4096)
        self._tasks = tasks
        self._num_generations = num_generations
        self._groups_at_once = groups_at_once
        self._queue_size = queue_size
        self._create_params = dict(create_params or {})
        self._play_settings: dict[str, Any] = {
            "head_server_config": head_server_config,
            "attempts": attempts,
            "decode": decode,
        }
        self._model_version = 0
        self._groups = 0
        self._gate = gate
        self._loop: LoopThread | None = None
        self._producing: Future[None] | None = None
        self._last_sign_of_life = time.monotonic()

    # --- what the trainer calls ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to play. A worker that was stopped may be started again."""
        if self._loop is not None:
            return
        self._loop = open_rollout_loop("trl-rollout-worker")
        self._last_sign_of_life = time.monotonic()
        self._announce(restart=True)
        self._producing = self._loop.submit(self._produce())

    def stop(self) -> None:
        """Stop playing; rollouts that are under way are given up."""
        loop = self._loop
        self._loop = None
        if loop is not None:
            loop.close()

    def update_model_version(self, model_version: int) -> None:
        """Note which weights are live, and tell the servers. Groups that begin from now on carry this version."""
        went_back = model_version < self._model_version
        self._model_version = model_version
        if self._gate is not None:
            self._gate.announce(model_version, restart=went_back)
        self._announce(restart=went_back)

    def _announce(self, *, restart: bool) -> None:
        if self._loop is not None:
            head = self._play_settings["head_server_config"]
            self._loop.submit(announce(self._model_version, restart=restart, head_server_config=head)).result()

    def check_health(self, stale_after_s: float) -> None:
        """Raise if the worker has failed, or if no rollout has ended for `stale_after_s`."""
        if self._producing is not None and self._producing.done() and not self._producing.cancelled():
            error = self._producing.exception()
            raise WorkerFailed(
                f"the rollout worker has failed: {error}\nhint: see the error above and the logs of the servers"
            ) from error
        silent_s = time.monotonic() - self._last_sign_of_life
        if self._loop is not None and silent_s > stale_after_s:
            raise WorkerFailed(
                f"no rollout has ended for {silent_s:.0f} s, longer than {stale_after_s:g} s.\n"
                "hint: see whether the model's endpoint answers; long rollouts need a larger heartbeat_stale_after_s"
            )

    # --- playing ------------------------------------------------------------------------------------------------------

    async def _produce(self) -> None:
        """Keep several players at work, each one group after the other, until one of them fails."""
        async with asyncio.TaskGroup() as players:
            for _ in range(self._groups_at_once):
                players.create_task(self._play_groups())

    async def _play_groups(self) -> None:
        while True:
            while not self._may_begin_group():
                self._last_sign_of_life = time.monotonic()  # waiting for a slow trainer is not a failure
                await asyncio.sleep(_FULL_PAUSE_S)
            number = self._groups
            self._groups += 1
            task_index = number % len(self._tasks)
            version = self._model_version
            task = self._tasks[task_index]
            keys = [(task_index, attempt) for attempt in range(self._num_generations)]
            rollouts = await play_rows(
                [make_row(task, key, self._create_params) for key in keys], **self._play_settings
            )
            self._last_sign_of_life = time.monotonic()
            for sample in make_samples(rollouts, make_prompt(task, task_index), version, number):
                self.rollout_buffer.put(sample)
            if self._gate is not None and (lost := sum(not _is_usable(rollout) for rollout in rollouts)):
                self._gate.give_back(lost)
            self._note_metrics(rollouts)

    def _may_begin_group(self) -> bool:
        is_full = self.rollout_buffer.qsize() >= self._queue_size
        return not is_full and (self._gate is None or self._gate.try_admit(self._num_generations))

    def _note_metrics(self, rollouts: Sequence[TrainableRollout]) -> None:
        failed = sum(not rollout.is_valid for rollout in rollouts)
        forked = sum(rollout.drift == "forked" for rollout in rollouts)
        try:
            # TRL takes a pair as a rate: a count and a total.
            self.metrics_queue.put_nowait(
                {"gym/failed": (failed, len(rollouts)), "gym/forked": (forked, len(rollouts))}
            )
        except queue.Full:
            LOG.debug("the trainer does not read metrics; those of a group are dropped")


def compute_advantages(rewards: Sequence[float | None]) -> list[float | None]:
    """Return how much better than its group each rollout was, in standard deviations; None where it has no reward."""
    scored = [reward for reward in rewards if reward is not None]
    if not scored:
        return [None] * len(rewards)
    middle = fmean(scored)
    spread = pstdev(scored)
    return [None if reward is None else (reward - middle) / (spread + _EPSILON) for reward in rewards]


def make_samples(
    rollouts: Sequence[TrainableRollout], prompt: list[dict[str, Any]], model_version: int, group_id: int
) -> list[Any]:
    """Return TRL's samples of one group: one for each branch that the model wrote something of, none for failures."""
    import numpy as np
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    rewards = [rollout.reward if _is_usable(rollout) else None for rollout in rollouts]
    scored = [reward for reward in rewards if reward is not None]
    samples = []
    for rollout, reward, advantage in zip(rollouts, rewards, compute_advantages(rewards), strict=True):
        if advantage is None:
            continue
        for branch in rollout.branches:
            if not any(branch.mask):
                continue
            before = len(branch.prompt_ids)
            samples.append(
                RolloutSample(
                    prompt=prompt,
                    completion=[],
                    input_ids=np.asarray(branch.ids, dtype=np.int64),
                    completion_mask=np.asarray([0] * before + branch.mask, dtype=np.int64),
                    old_log_probs=np.asarray([0.0] * before + branch.log_probs, dtype=np.float32),
                    advantage=advantage,
                    model_version=model_version,
                    group_id=group_id,
                    metrics={"reward": float(reward or 0.0), "reward_std": pstdev(scored)},
                    enqueued_at=time.time(),
                )
            )
    return samples


def _is_usable(rollout: TrainableRollout) -> bool:
    return rollout.is_valid and bool(rollout.turns)


def make_turn_records(rollout: TrainableRollout) -> list[Any]:
    """Return the model calls of a rollout as TRL's `TurnRecord`s, for loops that join turns by TRL's own rules."""
    from trl.experimental.async_grpo.async_rollout_worker import TurnRecord

    return [TurnRecord(turn.prompt_ids, turn.generated_ids, turn.log_probs) for turn in rollout.turns]

# SPDX-License-Identifier: Apache-2.0
"""The worker of TRL's asynchronous trainer: groups of rollouts become samples, failures become none."""

import asyncio
import inspect
import itertools
import time
from concurrent.futures import wait
from importlib.util import find_spec
from typing import Any

import pytest
from omegaconf import DictConfig

from nemo_gym import global_config
from nemo_gym.cli.env import RunHelper
from nemo_gym.global_config import HEAD_SERVER_KEY_NAME, GlobalConfigDictParserConfig
from nemo_gym.integrations import trl_async
from nemo_gym.integrations.lent_models import lend_model, take_back_model
from nemo_gym.integrations.trl_async import (
    RolloutWorker,
    WorkerFailed,
    compute_advantages,
    make_samples,
    make_turn_records,
)
from nemo_gym.policy_versions import StalenessGate, read_policy_version
from nemo_gym.trajectories import TrainableRollout
from responses_api_models.transformers_model.tests.conftest import make_model, make_tokenizer
from tests.support.small_servers import free_port

needs_trl = pytest.mark.skipif(
    not all(map(find_spec, ("torch", "trl"))),
    reason="needs trl: `make train-test` has an environment with it",
)
TASK = {
    "responses_create_params": {"input": [{"role": "user", "content": "First letter of apple?"}]},
    "category": "letters",
    "answers": ["a"],
    "agent_ref": {"name": "first_steps_simple_agent"},
}


def played(reward: float, *turns: tuple[list[int], list[int]]) -> TrainableRollout:
    items = [
        {"prompt_token_ids": prompt, "generation_token_ids": said, "generation_log_probs": [-0.5] * len(said)}
        for prompt, said in turns
    ]
    return TrainableRollout.from_row({"reward": reward, "response": {"output": items}})


def failed() -> TrainableRollout:
    return TrainableRollout.from_row({"_ng_failure": {"kind": "verify"}})


def test_advantages_are_those_of_the_scored_members_alone():
    assert compute_advantages([1.0, None, 0.0]) == pytest.approx([1.0, None, -1.0])
    assert compute_advantages([1.0, None]) == [0.0, None]
    assert compute_advantages([None, None]) == [None, None]
    assert compute_advantages([1.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]


@needs_trl
def test_a_group_becomes_samples_that_hold_nothing_of_its_failures():
    rollouts = [played(1.0, ([1, 2], [3]), ([1, 2, 3, 9], [4, 5])), failed(), played(0.0, ([1, 2], [6]))]
    first, second = make_samples(rollouts, [], model_version=7, group_id=3)
    assert first.input_ids.tolist() == [1, 2, 3, 9, 4, 5]
    assert first.completion_mask.tolist() == [0, 0, 1, 0, 1, 1]
    assert first.old_log_probs.tolist() == [0.0, 0.0, -0.5, 0.0, -0.5, -0.5]
    assert (first.advantage, second.advantage) == (pytest.approx(1.0), pytest.approx(-1.0))
    assert (first.model_version, first.group_id, first.metrics["reward"]) == (7, 3, 1.0)
    assert make_samples([failed(), failed()], [], 0, 0) == []


@needs_trl
def test_every_branch_of_a_forked_rollout_is_a_sample_with_the_same_advantage():
    forked = played(1.0, ([1, 2], [3]), ([7, 8], [9]))
    samples = make_samples([forked, played(0.0, ([1, 2], [6]))], [], 0, 0)
    assert [sample.input_ids.tolist() for sample in samples] == [[1, 2, 3], [7, 8, 9], [1, 2, 6]]
    assert samples[0].advantage == samples[1].advantage > 0 > samples[2].advantage


@needs_trl
def test_trl_joins_our_turns_as_we_do():
    from trl.experimental.async_grpo.async_rollout_worker import _chain_to_sequences

    rollout = played(1.0, ([1, 2], [3]), ([1, 2, 3, 9], [4, 5]), ([1, 2, 3, 9, 4, 5], [6]), ([8, 8], [7]))
    joined, tally = _chain_to_sequences(make_turn_records(rollout), "id", 1024)
    ours = [([0] * len(b.prompt_ids) + b.mask, b.ids) for b in rollout.branches]
    assert [(sequence.completion_mask, sequence.input_ids) for sequence in joined] == ours
    assert (tally["clean"], tally["fork"]) == (2, 1)


@needs_trl
def test_the_worker_has_the_shape_that_the_trainer_expects():
    from trl.experimental.async_grpo.async_grpo_trainer import RolloutWorkerProtocol

    worker = RolloutWorker([TASK])
    names = [name for name in vars(RolloutWorkerProtocol) if not name.startswith("_")]
    assert {"start", "stop", "update_model_version", "check_health"} <= set(names)
    for name in names:
        wanted = inspect.signature(getattr(RolloutWorkerProtocol, name))
        assert [*inspect.signature(getattr(RolloutWorker, name)).parameters] == [*wanted.parameters]
    for name in RolloutWorkerProtocol.__annotations__:
        assert getattr(worker, name).qsize() == 0


@pytest.fixture
def servers(monkeypatch, tmp_path):
    monkeypatch.setattr(global_config, "_GLOBAL_CONFIG_DICT", None)
    lend_model("policy", make_model(), make_tokenizer())
    given = {
        "config_paths": [
            "resources_servers/first_steps/configs/first_steps.yaml",
            "responses_api_models/transformers_model/configs/transformers_model_for_training.yaml",
        ],
        HEAD_SERVER_KEY_NAME: {"host": "127.0.0.1", "port": free_port()},
    }
    helper = RunHelper()
    helper.start(
        GlobalConfigDictParserConfig(
            dotenv_path=tmp_path / "env.yaml", initial_global_config_dict=DictConfig(given), skip_load_from_cli=True
        )
    )
    yield
    helper.shutdown()
    take_back_model("policy")


@needs_trl
@pytest.mark.timeout(600)
def test_trl_reads_samples_of_a_running_worker_and_hears_of_new_weights(servers):
    from accelerate import PartialState
    from trl.experimental.async_grpo.async_grpo_trainer import RolloutQueueDataset

    PartialState()  # a trainer makes one, and TRL cannot log without it
    version, metrics = 0, dict[str, list[Any]]()
    worker = RolloutWorker(
        [TASK, {**TASK, "answers": []}],  # the second cannot be verified, so that all its rollouts fail
        num_generations=4,
        groups_at_once=2,
        queue_size=6,
        create_params={"max_output_tokens": 5},
        attempts=1,
    )
    dataset = RolloutQueueDataset(
        worker.rollout_buffer, lambda: version, worker.check_health, 60.0, _Metrics(metrics), max_staleness=100
    )
    worker.start()
    worker.start()  # twice is once
    try:
        samples = iter(dataset)
        first = list(itertools.islice(samples, 8))
        worker.update_model_version(5)
        deadline = time.monotonic() + 300
        while worker.rollout_buffer.get(timeout=300).model_version != 5:
            assert time.monotonic() < deadline
        worker.check_health(60.0)
        told = worker.metrics_queue.get(timeout=300)
        assert asyncio.run(read_policy_version()) == 5
    finally:
        worker.stop()
        worker.stop()
    # Groups 0, 2, 4 … are of the task that can be verified.
    assert {sample["group_id"] % 2 for sample in first} == {0}
    for sample in first:
        written = sample["completion_mask"].sum()
        assert 1 <= written <= 5
        assert (sample["old_log_probs"][-written:] < 0).all()
    assert set(told) == {"gym/failed", "gym/forked"}
    assert told["gym/failed"][1] == 4


@needs_trl
async def test_a_gate_holds_groups_back_until_there_are_new_weights(monkeypatch):
    begun = []

    async def play(rows, **_):
        begun.append(len(rows))
        return [failed(), *(played(1.0, ([1, 2], [3])) for _ in rows[1:])]

    monkeypatch.setattr(trl_async, "play_rows", play)
    monkeypatch.setattr(trl_async, "make_samples", lambda *_: [])
    gate = StalenessGate(max_staleness=1, batch_size=4, version=0)
    worker = RolloutWorker([TASK], num_generations=4, groups_at_once=1, gate=gate)

    async def wait_for(groups):
        async with asyncio.timeout(300):
            while len(begun) < groups or gate.free >= 4:  # noqa: ASYNC110  there is no event to wait for
                await asyncio.sleep(0.01)

    playing = asyncio.create_task(worker._produce())
    try:
        await wait_for(2)  # two batches of four, of which a failure in each gives its place back
        assert (len(begun), gate.free) == (2, 2)
        worker.update_model_version(1)
        await wait_for(3)
        assert (len(begun), gate.free) == (3, 3)
    finally:
        playing.cancel()
        await asyncio.gather(playing, return_exceptions=True)


class _Metrics(dict[str, list[Any]]):
    def __missing__(self, key: str) -> list[Any]:
        return self.setdefault(key, [])


@needs_trl
@pytest.mark.timeout(600)
def test_a_worker_that_has_failed_or_is_silent_says_so(servers):
    broken = RolloutWorker([{**TASK, "agent_ref": {}}], num_generations=1)
    broken.start()
    try:
        wait([broken._producing], timeout=500)
        with pytest.raises(WorkerFailed, match=r"(?s)has failed.*hint:"):
            broken.check_health(1000.0)
    finally:
        broken.stop()
    silent = RolloutWorker([TASK])
    silent._loop, silent._last_sign_of_life = object(), time.monotonic() - 100
    with pytest.raises(WorkerFailed, match=r"(?s)no rollout has ended for 100 s.*hint:"):
        silent.check_health(50.0)

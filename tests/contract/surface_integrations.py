# SPDX-License-Identifier: Apache-2.0
"""The contract of the integrations with trainers."""

from tests.contract.shapes import OPTIONAL, class_, constant, coroutine, dataclass_, error, function, same

LENT_MODELS = (
    dataclass_("LentModel", "model tokenizer", lock=OPTIONAL),
    function("lend_model", "name, model, tokenizer"),
    function("take_back_model", "name"),
    function("find_lent_model", "name"),
)

PLAYING = (
    function("read_tasks", "path, agent=None"),
    function("make_row", "task, key, create_params"),
    coroutine("play_rows", "rows, *, head_server_config=None, attempts=2, decode=None"),
)

TRL = (
    constant("MADE_FOR", "1.16"),
    constant("REWARD_KEY", "gym_reward"),
    constant("FAILURE_KEY", "gym_failure"),
    constant("DRIFT_KEY", "gym_drift"),
    error("CannotTrain", "GymError"),
    same("read_tasks", "nemo_gym.integrations.playing:read_tasks"),
    function("make_dataset", "tasks"),
    function("rollout_func", "tasks, *, head_server_config=None, create_params=None, attempts=2"),
    function("make_entries", "rollouts, filler_id"),
    function("reward_func", "*, gym_reward, **given"),
)

TRL_ASYNC = (
    error("WorkerFailed", "GymError"),
    class_(
        "RolloutWorker",
        "tasks, *, num_generations=8, groups_at_once=8, queue_size=256, head_server_config=None, create_params=None, "
        "attempts=2, decode=None",
        function("start", ""),
        function("stop", ""),
        function("update_model_version", "model_version"),
        function("check_health", "stale_after_s"),
    ),
    function("make_samples", "rollouts, prompt, model_version, group_id"),
    function("make_turn_records", "rollout"),
)

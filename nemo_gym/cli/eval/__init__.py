# SPDX-License-Identifier: Apache-2.0
"""`gym eval`: collect rollouts, and inspect the results.

run         `gym eval run`, from its settings to its exit code; start reading here
settings    what a run is asked to do, and the file that its tasks come from
reverify    `gym eval reverify`: score stored responses again
files       `gym eval aggregate`, `profile` and `compare`, which need no server

The names here let programs and scripts call these commands without arguments.
"""

from typing import TYPE_CHECKING

from nemo_gym._util.moved_names import find_names
from nemo_gym.cli.legacy import entry_point

if TYPE_CHECKING:
    from nemo_gym.cli.prepare import PrepareBenchmarkConfig as PrepareBenchmarkConfig
else:
    __getattr__ = find_names(__name__, {"nemo_gym.cli.prepare": "PrepareBenchmarkConfig"})

e2e_rollout_collection = entry_point("e2e_collect_rollouts")
collect_rollouts = entry_point("collect_rollouts")
aggregate_rollouts = entry_point("aggregate_rollouts")
reward_profile = entry_point("reward_profile")
list_benchmarks = entry_point("list_benchmarks")
prepare_benchmark = entry_point("prepare_benchmark")

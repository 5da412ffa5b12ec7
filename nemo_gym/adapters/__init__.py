# SPDX-License-Identifier: Apache-2.0
"""Base classes that turn third-party environments into servers, one for each kind of environment.

    kind of environment                              base class        you write
    a function that scores an answer                 ScoringServer     `score(answer, task)`
    stepwise: text in, observation and reward out    TextStepServer    `make_environment(task)`, with `step(text)`
    stepwise: tool calls in, messages out            ToolStepServer    the same, with `step(calls, text)`
    a runner that owns the whole loop                RolloutRunner     `play(task, model)`
    the same, in an asynchronous library             LibraryRunner     `play_in_library(task, model)`

The first three are resources servers, the last two are agents. The resources servers run environment code in separate
processes: if it hangs, crashes or runs out of memory, that rollout fails with a named failure and the others go on.
"""

from nemo_gym.adapters.rollout_runner import (
    LibraryRunner,
    ModelEndpoint,
    RolloutRunner,
    RolloutRunnerConfig,
    RunnerResult,
)
from nemo_gym.adapters.scoring import ScoringServer, ScoringServerConfig
from nemo_gym.adapters.steps import StepServerConfig, TextStepServer, ToolStepServer, derive_seed

__all__ = [
    "LibraryRunner",
    "ModelEndpoint",
    "RolloutRunner",
    "RolloutRunnerConfig",
    "RunnerResult",
    "ScoringServer",
    "ScoringServerConfig",
    "StepServerConfig",
    "TextStepServer",
    "ToolStepServer",
    "derive_seed",
]

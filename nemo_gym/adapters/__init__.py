# SPDX-License-Identifier: Apache-2.0
"""Bases that turn somebody else's environments into servers, one for each shape that environments have.

    shape                                            base              an author writes
    a function of an answer and its row              ScoringServer     `score(answer, task)`
    text in, observation and reward out, by steps    TextStepServer    `make_environment(task)`, with `step(text)`
    tool calls in, messages out, by steps            ToolStepServer    the same, with `step(calls, text)`
    a runner that owns the whole loop                RolloutRunner     `play(task, model)`
    the same, of an asynchronous library             LibraryRunner     `play_in_library(task, model)`

The first three are resources servers, the others are agents. Code of an environment runs in processes apart from the
server: one that hangs, crashes, or eats memory is the named failure of its own rollout, and the others go on.
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

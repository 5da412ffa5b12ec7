# SPDX-License-Identifier: Apache-2.0
"""Environments as users have them, which this module registers: one with arrays as actions, one with texts."""

import gymnasium
import numpy
from gymnasium import spaces


class Slider(gymnasium.Env):
    """A place on a line, which actions move; 1 ends it."""

    action_space = spaces.Box(-1.0, 1.0, (1,), dtype=numpy.float32)
    observation_space = spaces.Dict({"place": spaces.Box(-9.0, 9.0, (1,), dtype=numpy.float32)})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._place = 0.0
        return self._observe(), {}

    def step(self, action):
        self._place += float(action[0])
        return self._observe(), self._place, self._place >= 1, False, {}

    def _observe(self):
        return {"place": numpy.array([self._place], dtype=numpy.float32)}


class Echo(gymnasium.Env):
    """Any text is an action, and its length the reward."""

    action_space = spaces.Text(100)
    observation_space = spaces.Text(100)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return "Say something.", {}

    def step(self, action):
        return action, float(len(action)), False, False, {}


gymnasium.register("Slider-v0", Slider, max_episode_steps=7)
gymnasium.register("Echo-v0", Echo)

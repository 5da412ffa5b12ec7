# SPDX-License-Identifier: Apache-2.0
"""A small OpenEnv server to try this out with: guess a number. It needs `openenv-core`, and port 8000 unless told."""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

HIGHEST, GUESSES = 20, 5


class Guess(Action):
    """Guess the number."""

    number: str


class Hint(Observation):
    text: str


class Guessing(Environment):
    """Guess a number that follows from the seed: 1 for finding it."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Choose a number."""
        self._secret, self._state = random.Random(seed).randint(1, HIGHEST), State(episode_id=episode_id)
        return Hint(text=f"Guess a number from 1 to {HIGHEST}. You have {GUESSES} guesses.")

    def step(self, action, timeout_s=None, **kwargs):
        """Compare."""
        self._state.step_count += 1
        said = action.number.strip()
        is_right = said == str(self._secret)
        hint = "Guess a number." if not said.isdigit() else "Too low." if int(said) < self._secret else "Too high."
        is_over = is_right or self._state.step_count >= GUESSES
        return Hint(text="Right." if is_right else hint, reward=float(is_right), done=is_over)

    @property
    def state(self):
        """Return how far it is."""
        return self._state


app = create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=64)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, log_level="warning")

# SPDX-License-Identifier: Apache-2.0
"""A small OpenEnv server to try this out: guess a number. It needs `openenv-core`, and uses port 8000 by default."""

import random
import sys

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

HIGHEST = 20
GUESSES = 5


class Guess(Action):
    """Guess the number."""

    number: str


class Hint(Observation):
    text: str


class Guessing(Environment):
    """Guess a number drawn from the seed; the reward for finding it is 1."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        """Draw a number."""
        self._secret = random.Random(seed).randint(1, HIGHEST)
        self._state = State(episode_id=episode_id)
        return Hint(text=f"Guess a number from 1 to {HIGHEST}. You have {GUESSES} guesses.")

    def step(self, action, timeout_s=None, **kwargs):
        """Compare the guess with the number."""
        self._state.step_count += 1
        guess = action.number.strip()
        is_right = guess == str(self._secret)
        hint = "Guess a number." if not guess.isdigit() else "Too low." if int(guess) < self._secret else "Too high."
        is_over = is_right or self._state.step_count >= GUESSES
        return Hint(text="Right." if is_right else hint, reward=float(is_right), done=is_over)

    @property
    def state(self):
        """Return the state of the episode."""
        return self._state


app = create_fastapi_app(Guessing, Guess, Hint, max_concurrent_envs=64)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000, log_level="warning")

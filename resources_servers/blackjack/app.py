# SPDX-License-Identifier: Apache-2.0
"""Blackjack, played step by step by `gymnasium_agent`: hit or stand until the hand is over, for +1, 0 or -1.

The task decides the cards: its `seed`, or else the task itself and the index of the rollout. So a run can be repeated,
and the repeats of a task without a seed are different hands.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from fastapi import HTTPException

from nemo_gym import grading
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.session_store import UnknownSession
from nemo_gym.step_environments import GymnasiumServer, extract_text
from resources_servers.blackjack.game import REWARDS, Game

_ACTION = re.compile(r"<action>\s*(hit|stand)\s*</action>", re.IGNORECASE)
_PLACE = ("_ng_task_index", "_ng_rollout_index")
_NOT_THE_TASK = ("agent_ref", "response")


class BlackjackResourcesServer(GymnasiumServer):
    """A dealer; `session_state` holds the hands that are being played."""

    async def reset(self, metadata: dict[str, Any], session_id: str) -> tuple[str | None, dict[str, Any]]:
        """Deal."""
        game = Game.dealt(seed_of(metadata))
        self.session_state[session_id] = game
        return _observed(game), game.seen()

    async def step(
        self, action: NeMoGymResponse, metadata: dict[str, Any], session_id: str
    ) -> tuple[str | None, float, bool, bool, dict[str, Any]]:
        """Hit or stand. A finished hand is deleted."""
        try:
            game: Game = self.session_state[session_id]
        except UnknownSession as error:
            raise HTTPException(400, "no hand is being played in this session.\nhint: call /reset first") from error
        result = game.hit() if hits(extract_text(action)) else game.stand()
        if result is None:
            return _observed(game), 0.0, False, False, game.seen()
        del self.session_state[session_id]
        return None, REWARDS[result], True, False, game.shown(result)


def hits(text: str) -> bool:
    """Return whether the first action says hit; a text without an action means stand. Thinking is not read."""
    action = _ACTION.search(grading.strip_thinking(text))
    return action is not None and action[1].lower() == "hit"


def seed_of(metadata: Mapping[str, Any]) -> str:
    """Return what decides the cards of a rollout."""
    if metadata.get("seed") is not None:
        return f"seed {json.dumps(metadata['seed'], sort_keys=True)}"
    task = {key: field for key, field in metadata.items() if not key.startswith("_ng_") and key not in _NOT_THE_TASK}
    place = [metadata.get(key) for key in _PLACE]
    return f"task {json.dumps([task, place], sort_keys=True)}"


def _observed(game: Game) -> str:
    seen = game.seen()
    return (
        f"Your hand: [{', '.join(seen['player'])}] = {seen['player_value']}\n"
        f"The dealer shows: {', '.join(seen['dealer'])}\n"
        "Answer with <action>hit</action> or <action>stand</action>."
    )


if __name__ == "__main__":
    BlackjackResourcesServer.run_webserver()

# SPDX-License-Identifier: Apache-2.0
"""The rules of Gymnasium's toy-text environments in words, and the names of their actions."""

from typing import Any, NamedTuple


class Known(NamedTuple):
    """The rules of an environment, for the model, and the names of its actions in numerical order."""

    rules: str
    actions: tuple[str, ...]


_LAKE = (
    "You walk over a frozen lake from S to G. F is ice, H is a hole that ends the walk. You are where the brackets "
    "are. Only G has a reward, which is 1. "
)
_ON_ICE = "The ice may be slippery: then you often slip to one side of the direction that you chose."
_CLIFF = (
    "You walk over a grid from the lower left to T in the lower right. You are x. Every step costs 1. C is the "
    "cliff: stepping on it costs 100 and takes you back to the start. "
)
_KNOWN = {
    "FrozenLake": Known(_LAKE + _ON_ICE, ("left", "down", "right", "up")),
    "FrozenLake8x8": Known(_LAKE + _ON_ICE, ("left", "down", "right", "up")),
    "CliffWalking": Known(_CLIFF, ("up", "right", "down", "left")),
    "CliffWalkingSlippery": Known(_CLIFF + "It is slippery.", ("up", "right", "down", "left")),
    "Taxi": Known(
        "You drive a taxi. Go to where the passenger is, pick up, go to the destination, drop off. | is a wall, : is "
        "none. The brackets are around the taxi. Every step costs 1, a pickup or dropoff at a wrong place costs 10, "
        "and bringing the passenger to the destination gives 20.",
        ("south", "north", "east", "west", "pickup", "dropoff"),
    ),
    "Blackjack": Known(
        "You play blackjack against a dealer who draws to 17. Face cards count 10, an ace 11 or 1. Whoever has more "
        "without going over 21 wins: 1 for a win, -1 for a loss.",
        ("stick", "hit"),
    ),
}
_UNKNOWN = Known("You play the environment {env_id}, step by step, for the largest total reward.", ())
_UNNAMED_FORM = "In every turn, say which action you take, and nothing else."
_FORM = "In every turn, say which of these actions you take, in tags like <action>{example}</action>"


def find_known(env_id: str) -> Known:
    """Return the rules and actions of an environment, whatever its version."""
    name = env_id.rpartition(":")[2].rpartition("-v")[0]
    return _KNOWN.get(name, _UNKNOWN)


def make_row(env_id: str, seed: int, **fields: Any) -> dict[str, Any]:
    """Return a row with fields such as `env_kwargs`, `actions` and `observation`; `rules` go only into the prompt."""
    known = find_known(env_id)
    rules = fields.pop("rules", None) or known.rules.format(env_id=env_id)
    names = list(fields.get("actions") or known.actions)
    form = f"{_FORM.format(example=names[0])}: {', '.join(names)}" if names else _UNNAMED_FORM
    message = {"role": "system", "content": f"{rules.strip()}\n{form}"}
    return {"responses_create_params": {"input": [message]}, "env_id": env_id, "seed": seed, **fields}

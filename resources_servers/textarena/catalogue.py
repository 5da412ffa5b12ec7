# SPDX-License-Identifier: Apache-2.0
"""What the installed TextArena offers, and rows of it. It runs where the library is installed: in the server's venv.

The library does not say which of its games can be played, nor with how many players: they are tried.
"""

import contextlib
import io
from typing import Any
from unittest import mock

from resources_servers.textarena.environment import count_players, open_game

INSTRUCTION = (
    "You play a game. Read its rules carefully. In each of your turns answer with your move, in the form that the game "
    "asks for, which is mostly a text in square brackets. An illegal move may lose the game."
)
_ROW_OPTIONS = ("env_args", "players", "seat", "opponent", "opponent_moves")
_LOOKS = {
    "": "the observations are the whole game",
    "-train": "the observations are rules and board",
    "-raw": "the observations are the messages, unwrapped",
}


def list_environments() -> list[dict[str, Any]]:
    """Return all games, with what each needs; several variants of a game are tried once."""
    from textarena.envs.registration import ENV_REGISTRY

    first = {spec.entry_point: env_id for env_id, spec in reversed(ENV_REGISTRY.items())}
    needs = {entry_point: _find_needs(env_id) for entry_point, env_id in first.items()}
    return [
        {"id": env_id, "description": f"{needs[spec.entry_point]}; {_LOOKS[_find_look(env_id)]}"}
        for env_id, spec in ENV_REGISTRY.items()
    ]


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `rows` tasks of a game with seeds from `seed` on; `options` may hold what a row may hold.

    `seat: "alternate"` gives the model each seat in turn.
    """
    fields = {key: options[key] for key in _ROW_OPTIONS if key in options}
    players = fields.get("players") or count_players(environment_id, fields.get("env_args") or {})
    return [
        {
            "responses_create_params": {"input": [{"role": "system", "content": INSTRUCTION}]},
            "env_id": environment_id,
            "env_args": {},
            **fields,
            "players": players,
            **({"seat": number % players} if fields.get("seat") == "alternate" else {}),
            "seed": seed + number,
        }
        for number in range(rows)
    ]


def make_config(environment_id: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of the server and its agent that `options` are about: `opponent_model` and `max_steps`."""
    open_game(environment_id, options.get("env_args") or {})
    config: dict[str, Any] = {}
    if name := options.get("opponent_model"):
        model = {"type": "responses_api_models", "name": name}
        config["server"] = {"opponent": "model", "opponent_model_server": model}
    if (most := options.get("max_steps")) is not None:
        config["agent"] = {"max_steps": most}
    return config


def _find_look(env_id: str) -> str:
    return next((look for look in ("-train", "-raw") if env_id.endswith(look)), "")


def _find_needs(env_id: str) -> str:
    """Return how many players a game takes, or what is in its way."""
    import nltk

    quiet = contextlib.redirect_stdout(io.StringIO())
    try:
        # Listing games is no reason to download word lists.
        with mock.patch.object(nltk, "download", return_value=False), quiet:
            players = count_players(env_id, {})
    except LookupError:
        return "needs network once: word lists of NLTK"
    except SyntaxError:
        return "needs Python 3.12"
    except ImportError as error:
        return f"cannot be played: {error}"
    except OSError:
        return "cannot be played: the package lacks files of it"
    except ValueError as error:
        return f"needs network: {error}" if "API key" in str(error) else f"cannot be played: {error}"
    return f"players: {players}"

# SPDX-License-Identifier: Apache-2.0
"""List the games of the installed TextArena and make rows for them. This runs in the server's virtual environment.

The library does not say which of its games work, nor with how many players, so each is tried.
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
_VARIANTS = {
    "": "the observations are the whole game",
    "-train": "the observations are rules and board",
    "-raw": "the observations are the messages, unwrapped",
}


def list_environments() -> list[dict[str, Any]]:
    """Return all games, with what each needs; the variants of a game are tried only once."""
    from textarena.envs.registration import ENV_REGISTRY

    first = {spec.entry_point: env_id for env_id, spec in reversed(ENV_REGISTRY.items())}
    needs = {entry_point: _find_needs(env_id) for entry_point, env_id in first.items()}
    return [
        {"id": env_id, "description": f"{needs[spec.entry_point]}; {_VARIANTS[_find_variant(env_id)]}"}
        for env_id, spec in ENV_REGISTRY.items()
    ]


def make_rows(environment_id: str, rows: int, seed: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Return `rows` tasks of a game with consecutive seeds from `seed`; `options` may set fields of the rows.

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
    """Return the config for the options `opponent_model` (of the server) and `max_steps` (of its agent)."""
    open_game(environment_id, options.get("env_args") or {})
    config: dict[str, Any] = {}
    if name := options.get("opponent_model"):
        model = {"type": "responses_api_models", "name": name}
        config["server"] = {"opponent": "model", "opponent_model_server": model}
    if (max_steps := options.get("max_steps")) is not None:
        config["agent"] = {"max_steps": max_steps}
    return config


def _find_variant(env_id: str) -> str:
    return next((variant for variant in ("-train", "-raw") if env_id.endswith(variant)), "")


def _find_needs(env_id: str) -> str:
    """Return how many players a game takes, or why it cannot be played."""
    import nltk

    quiet = contextlib.redirect_stdout(io.StringIO())
    try:
        # Listing games should not download word lists.
        with mock.patch.object(nltk, "download", return_value=False), quiet:
            players = count_players(env_id, {})
    except LookupError:
        return "needs network once: word lists of NLTK"
    except SyntaxError:
        return "needs Python 3.12"
    except ImportError as error:
        return f"cannot be played: {error}"
    except OSError:
        return "cannot be played: the package lacks some of its files"
    except ValueError as error:
        return f"needs network: {error}" if "API key" in str(error) else f"cannot be played: {error}"
    return f"players: {players}"

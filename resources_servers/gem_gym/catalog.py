# SPDX-License-Identifier: Apache-2.0
"""List the environments of the installed GEM and what each needs, and make rows for them."""

import difflib
from collections.abc import Mapping
from typing import Any

from nemo_gym.errors import GymError

GAME = (
    "You play a game, turn by turn. Think if you need to, and end each reply with one move in the form that the game "
    "asks for, inside \\boxed{}."
)
TASK = "Solve the task. Think if you need to, and end with your final answer, and nothing else, inside \\boxed{}."
QUESTION = "Answer the question, with the final answer inside <answer> and </answer>."
CODE = (
    "Solve the task with a Python program that reads standard input and writes standard output. End with the whole "
    "program in one ```python block."
)

REPAIRED_ARGS: Mapping[str, Mapping[str, Any]] = {
    "game:FifteenPuzzle-v0-random": {"num_rows": 2},
    "game:Crosswords-v0-random": {"hardcore": False},
}
"""Arguments without which GEM 0.1.0 cannot make these environments; a reset draws new values."""
_UNPLAYABLE = {"rg:composite": "a mixture of tasks that GEM gives no way to name"}
_WORD_GAMES = ("wordle", "hangman", "word_search")
_QUESTIONS = ("QaOpen", "2Wiki", "PopQA", "TriviaQA", "HotpotQA", "Bamboogle", "NaturalQuestions", "Musique")
_MAX_RANDOM_TURNS = 100
"""An upper bound for environments that draw their number of turns."""


class UnknownEnvironment(GymError):
    """The installed GEM does not have, or cannot make, this environment."""


def list_environments() -> list[dict[str, str]]:
    """Return the `id` and `description` of every playable environment."""
    return [
        {"id": each, "description": _describe(each)} for each in sorted(_read_registry()) if each not in _UNPLAYABLE
    ]


def make_rows(
    environment_id: str, rows: int, seed: int, options: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return tasks with consecutive seeds from `seed`; `options` are arguments of the environment."""
    check_environment(environment_id)
    return [make_row(environment_id, seed + number, options) for number in range(rows)]


def make_config(environment_id: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return overrides of the folder's config: as many steps as the longest episode has turns."""
    check_environment(environment_id)
    turns = {**_read_registry()[environment_id].kwargs, **(options or {})}.get("max_turns", 1)
    return {"agent": {"max_steps": int(turns or _MAX_RANDOM_TURNS)}}


def make_row(environment_id: str, seed: int, environment_args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return one task. Its question comes from the environment when an episode starts."""
    args = {"environment_args": dict(environment_args)} if environment_args else {}
    prompt = {"role": "system", "content": _choose_prompt(environment_id)}
    return {
        "responses_create_params": {"input": [prompt]},
        "environment_id": environment_id,
        **args,
        "seed": seed,
    }


def check_environment(environment_id: str) -> None:
    """Raise `UnknownEnvironment`, with the closest ids, if the installed GEM cannot play this one."""
    known = _read_registry()
    if environment_id in _UNPLAYABLE:
        raise UnknownEnvironment(
            f"GEM's {environment_id!r} cannot be played: it is {_UNPLAYABLE[environment_id]}.\n"
            "hint: the `reasoning_gym` server offers mixtures of tasks"
        )
    if environment_id not in known:
        close = difflib.get_close_matches(environment_id, known, n=3, cutoff=0.5)
        raise UnknownEnvironment(
            f"the installed GEM has no environment {environment_id!r}; it has {len(known)} others.\n"
            f"hint: {'did you mean ' + ' or '.join(map(repr, close)) + '?' if close else 'catalog.py lists them'}"
        )


def find_data_source(environment_id: str) -> str | None:
    """Return what an environment downloads when it is made, or None."""
    spec = _read_registry()[environment_id]
    if "dataset_name" in spec.kwargs:
        return f"the dataset {spec.kwargs['dataset_name']} of the Hugging Face Hub"
    return "the corpus `words` of NLTK" if spec.entry_point.split(":")[0].endswith(_WORD_GAMES) else None


def _describe(environment_id: str) -> str:
    family, name = environment_id.split(":")
    settings = {key: value for key, value in _read_registry()[environment_id].kwargs.items() if value is not None}
    match family:
        case "game":
            what = f"Game of several turns{_list_settings(settings)}"
        case "rg":
            what = f"One task {name!r} of reasoning-gym"
        case _:
            what = "One task of a dataset"
    source = find_data_source(environment_id)
    return f"{what}; needs network once for {source}" if source else what


def _list_settings(settings: Mapping[str, Any]) -> str:
    return f" ({', '.join(f'{key}={value}' for key, value in settings.items())})" if settings else ""


def _choose_prompt(environment_id: str) -> str:
    family, name = environment_id.split(":")
    if family == "code" or name == "CodeContest":
        return CODE
    if family == "qa" or (family == "eval" and name in _QUESTIONS):
        return QUESTION
    return GAME if family == "game" else TASK


def _read_registry() -> dict[str, Any]:
    from gem.envs.registration import ENV_REGISTRY

    registry: dict[str, Any] = ENV_REGISTRY
    return registry

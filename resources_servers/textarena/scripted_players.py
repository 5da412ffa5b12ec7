# SPDX-License-Identifier: Apache-2.0
"""Players without a model for the other seats of a game. They take their moves from the game's own text.

Games name moves in brackets, as examples (`'[col 4]'`) or as a list of available moves. A player tries these, and
others of the same form, on a copy of the game, and makes the first one that the game accepts.
"""

import copy
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nemo_gym.errors import GymError

POLICIES = ("random", "first", "script")
_MAX_PROPOSALS = 5_000
_MAX_TRIES = 1_500
_MAX_REFUSALS = 8
_PASS = "I pass."
_SAID_BY_PLAYERS = re.compile(r"^\[Player \d+\].*$|^\[GAME\]", re.MULTILINE)
_MOVE = re.compile(r"\[[^\[\]\n]+\]")
_NUMBER = re.compile(r"\d+")
_LONE_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_PLACEHOLDER = re.compile(r"<\w+>|(?<=[ $])[A-Z](?=[ \]])")
_HIGHEST_NUMBERS = (2, 3, 5, 9, 20, 100)
_SHARES_TO_CHANGE = (0.25, 0.5, 1.0)


class UnusableGame(GymError):
    """The library does not have the game, or the game cannot be played as the task asks."""


class ScriptedPlayer:
    """Plays one seat with one policy.

    `random` makes a random legal move, `first` makes the first legal move that the game names, and `script` repeats
    `moves` in order, whether legal or not.
    """

    def __init__(self, policy: str, moves: Sequence[str], seed: str) -> None:
        self._policy = policy
        self._moves = moves
        self._made = 0
        self._refused = 0
        # Not the global generator, from which the games draw.
        self._random = random.Random(seed)

    def choose_move(self, game: Any, observation: str, news: str) -> str:
        """Return the next move in a game; `news` is what this seat has seen since its last move."""
        if self._policy == "script":
            self._made += 1
            return self._moves[(self._made - 1) % len(self._moves)]
        tried = set[str]()
        for move in itertools.islice(self._propose_moves(observation, news), _MAX_PROPOSALS):
            if move not in tried and is_legal(game, move):
                return move
            tried.add(move)
            if len(tried) == _MAX_TRIES:
                break
        if not is_legal(game, _PASS):
            self._refused += 1
            if self._refused > _MAX_REFUSALS:
                raise UnusableGame(
                    f"the scripted player has found no legal move more than {_MAX_REFUSALS} times.\n"
                    "hint: give it moves (`opponent: script` and `opponent_moves`), or let a model play its seat"
                )
        return _PASS

    def _propose_moves(self, observation: str, news: str) -> Iterator[str]:
        available = _find_all(_MOVE, news)
        if self._policy == "random":
            self._random.shuffle(available)
        yield from available
        named, numbers, letters = (_find_all(form, observation) for form in (_MOVE, _NUMBER, _LONE_LETTER))
        if self._policy == "first":
            yield from named
        while named:
            move = self._random.choice(named)
            yield move
            yield self._vary(move, numbers, letters)

    def _vary(self, move: str, numbers: Sequence[str], letters: Sequence[str]) -> str:
        """Return a move of the same form with other numbers and letters, mostly ones that the game mentions."""
        highest = self._random.choice(_HIGHEST_NUMBERS)
        share = self._random.choice(_SHARES_TO_CHANGE)
        picks_known = self._random.random() < 0.7

        def draw_number(found: re.Match[str]) -> str:
            if self._random.random() > share:
                return found[0]
            return self._random.choice(numbers) if numbers and picks_known else str(self._random.randint(0, highest))

        def draw_letter(found: re.Match[str]) -> str:
            if self._random.random() > share:
                return found[0]
            letter = self._random.choice(letters)
            return letter.upper() if found[0].isupper() else letter.lower()

        if self._random.random() < 0.5:
            move = _PLACEHOLDER.sub(lambda _: str(self._random.randint(0, highest)), move)
        if letters and self._random.random() < 0.5:
            move = _LONE_LETTER.sub(draw_letter, move)
        return _NUMBER.sub(draw_number, move)


def _find_all(form: re.Pattern[str], text: str) -> list[str]:
    """Return the distinct matches of `form` in what the game itself says."""
    return list(dict.fromkeys(form.findall(_SAID_BY_PLAYERS.sub("", text))))


def is_legal(game: Any, move: str) -> bool:
    """Return whether the game accepts a move of the player whose turn it is, without changing the game."""
    trial = copy.deepcopy(_unwrap(game))
    player = trial.state.current_player_id
    random_state = random.getstate()
    try:
        trial.step(action=move)
    except Exception:  # a move that crashes the game is not a legal one
        return False
    finally:
        random.setstate(random_state)
    return not trial.state.game_info[player]["invalid_move"] and vars(trial.state).get("error_count", 0) == 0


def _unwrap(game: Any) -> Any:
    """Return the game without its wrappers, which keep all observations and are slow to copy."""
    from textarena import Wrapper

    while isinstance(game, Wrapper):
        game = game.env
    return game

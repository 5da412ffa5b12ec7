# SPDX-License-Identifier: Apache-2.0
"""Players that need no model, for the other seats of a game: their moves come from what the game tells them.

Games name moves in brackets, as examples (`'[col 4]'`) or as a list of those that are available. A player tries such
moves, and others of the same form, on a copy of the game, and makes the first one that the game takes.
"""

import copy
import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

from nemo_gym.errors import GymError

POLICIES = ("random", "first", "script")
_MOST_PROPOSALS = 5_000
_MOST_TRIES = 1_500
_MOST_REFUSALS = 8
_NOTHING_TO_SAY = "I pass."
_SAID_BY_PLAYERS = re.compile(r"^\[Player \d+\].*$|^\[GAME\]", re.MULTILINE)
_MOVE = re.compile(r"\[[^\[\]\n]+\]")
_NUMBER = re.compile(r"\d+")
_LONE_LETTER = re.compile(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])")
_PLACEHOLDER = re.compile(r"<\w+>|(?<=[ $])[A-Z](?=[ \]])")
_LARGEST_NUMBERS = (2, 3, 5, 9, 20, 100)
_SHARES_TO_CHANGE = (0.25, 0.5, 1.0)


class UnusableGame(GymError):
    """A game that the library does not have, or that cannot be played as the task wants it."""


class ScriptedPlayer:
    """One policy on one seat.

    `random` makes a random legal move, `first` the first legal one in the order in which the game names them, and
    `script` makes `moves` in turn, again and again, whatever the game says to them.
    """

    def __init__(self, policy: str, moves: Sequence[str], seed: str) -> None:
        self._policy, self._moves, self._made, self._refused = policy, moves, 0, 0
        # A generator of its own: the games draw from the global one.
        self._random = random.Random(seed)

    def choose_move(self, game: Any, observation: str, news: str) -> str:
        """Return the next move in a game of the library; `news` is what this seat is told since its last move."""
        if self._policy == "script":
            self._made += 1
            return self._moves[(self._made - 1) % len(self._moves)]
        tried = set[str]()
        for move in itertools.islice(self._propose_moves(observation, news), _MOST_PROPOSALS):
            if move not in tried and is_legal(game, move):
                return move
            tried.add(move)
            if len(tried) == _MOST_TRIES:
                break
        if not is_legal(game, _NOTHING_TO_SAY):
            self._refused += 1
            if self._refused > _MOST_REFUSALS:
                raise UnusableGame(
                    f"the scripted player found no move that the game takes, {_MOST_REFUSALS} times.\n"
                    "hint: give it moves (`opponent: script` and `opponent_moves`), or let a model play its seat"
                )
        return _NOTHING_TO_SAY

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
        """Return a move of the same form, with other numbers and letters: mostly those that the game speaks of."""
        most, share = self._random.choice(_LARGEST_NUMBERS), self._random.choice(_SHARES_TO_CHANGE)
        picks_told = self._random.random() < 0.7

        def draw_number(found: re.Match[str]) -> str:
            if self._random.random() > share:
                return found[0]
            return self._random.choice(numbers) if numbers and picks_told else str(self._random.randint(0, most))

        def draw_letter(found: re.Match[str]) -> str:
            if self._random.random() > share:
                return found[0]
            letter = self._random.choice(letters)
            return letter.upper() if found[0].isupper() else letter.lower()

        if self._random.random() < 0.5:
            move = _PLACEHOLDER.sub(lambda _: str(self._random.randint(0, most)), move)
        if letters and self._random.random() < 0.5:
            move = _LONE_LETTER.sub(draw_letter, move)
        return _NUMBER.sub(draw_number, move)


def _find_all(form: re.Pattern[str], told: str) -> list[str]:
    """Return what the game itself says in this form, each once."""
    return list(dict.fromkeys(form.findall(_SAID_BY_PLAYERS.sub("", told))))


def is_legal(game: Any, move: str) -> bool:
    """Tell whether the game takes a move of the player whose turn it is; nothing is changed by asking."""
    trial = copy.deepcopy(_unwrap(game))
    player = trial.state.current_player_id
    drawn = random.getstate()
    try:
        trial.step(action=move)
    except Exception:  # a move that the game cannot stand is none to make
        return False
    finally:
        random.setstate(drawn)
    return not trial.state.game_info[player]["invalid_move"] and vars(trial.state).get("error_count", 0) == 0


def _unwrap(game: Any) -> Any:
    """Return the game itself: its wrappers keep what all players were told, which takes long to copy."""
    from textarena import Wrapper

    while isinstance(game, Wrapper):
        game = game.env
    return game

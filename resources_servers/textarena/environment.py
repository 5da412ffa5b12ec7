# SPDX-License-Identifier: Apache-2.0
"""A game of TextArena with the model on one seat, as Gymnasium has it: what runs in the process of an episode.

Scripted players move here. For an opponent that is a model the game stops at each of its turns: `info["asks"]` holds
what it is told, and the next `step` is its move.
"""

import difflib
import random
from typing import Any

from resources_servers.textarena.scripted_players import POLICIES, ScriptedPlayer, UnusableGame

MODEL = "model"
_MOST_PLAYERS = 6
# These take any number of players, and are no games with one.
_LEAST_PLAYERS = {"QuantumTicTacToe": 2, "SpiteAndMalice": 2, "PublicGoodsGame": 2, "MarketEntryGame": 2}
Turn = tuple[str | None, float, bool, bool, dict[str, Any]]


def make(task: dict[str, Any]) -> "SeatedGame":
    """Return the game of a task."""
    return SeatedGame(
        task["env_id"],
        task.get("env_args") or {},
        players=task.get("players"),
        seat=task.get("seat", 0),
        opponent=task.get("opponent", "random"),
        opponent_moves=task.get("opponent_moves") or [],
    )


class SeatedGame:
    """A game seen from one seat; the reward of that seat comes with the last step."""

    def __init__(
        self,
        env_id: str,
        env_args: dict[str, Any],
        *,
        players: int | None,
        seat: int,
        opponent: str,
        opponent_moves: list[str],
    ) -> None:
        if opponent not in (*POLICIES, MODEL):
            raise UnusableGame(
                f"there is no opponent {opponent!r}.\nhint: `opponent` is one of {', '.join((*POLICIES, MODEL))}"
            )
        if opponent == "script" and not opponent_moves:
            raise UnusableGame("the opponent 'script' has no moves.\nhint: list them in `opponent_moves` of the row")
        self._game = open_game(env_id, env_args)
        self._players = players or count_players(env_id, env_args)
        if not 0 <= seat < self._players:
            raise UnusableGame(
                f"there is no seat {seat!r} in {env_id!r} with {self._players} players.\nhint: the first seat is 0"
            )
        self._seat, self._opponent, self._opponent_moves = seat, opponent, opponent_moves
        self._others: dict[int, ScriptedPlayer] = {}
        self._opponent_turns: list[dict[str, Any]] = []
        self._outcome: dict[str, Any] | None = None
        self._told: dict[int, str] = {}
        self._turn, self._telling = 0, ""

    def reset(self, seed: int) -> tuple[str | None, dict[str, Any]]:
        """Begin the game: what the model is told first."""
        if self._opponent != MODEL:
            self._others = {
                player: ScriptedPlayer(self._opponent, self._opponent_moves, f"{seed} {player}")
                for player in range(self._players)
                if player != self._seat
            }
        self._game.reset(num_players=self._players, seed=seed)
        self._play_others()
        observation, _, _, _, info = self._describe_turn()
        return observation, info

    def step(self, text: str) -> Turn:
        """Make the move of the model whose turn it is. A game that the others ended takes no move."""
        if self._outcome is None:
            self._move(text)
            self._play_others()
        return self._describe_turn()

    def _play_others(self) -> None:
        """Go on until it is the turn of a model, or the game is over."""
        while self._outcome is None:
            self._turn, told = self._game.get_observation()
            observation = told if isinstance(told, str) else _join_messages(told)
            # Most wrappers tell everything from the beginning, again and again.
            news = observation.removeprefix(self._told.get(self._turn, "")).strip() or observation
            self._told[self._turn] = observation
            if self._turn == self._seat:
                self._telling = news
                return
            if self._opponent == MODEL:
                self._telling = observation
                return
            self._move(self._others[self._turn].choose_move(self._game, observation, news))

    def _move(self, text: str) -> None:
        if self._turn != self._seat:
            self._opponent_turns.append({"player": self._turn, "action": text})
        is_over, _ = self._game.step(action=text)
        if is_over:
            rewards, game_info = self._game.close()
            self._outcome = {"rewards": rewards, "game_info": game_info}

    def _describe_turn(self) -> Turn:
        info: dict[str, Any] = {"opponent_turns": self._opponent_turns}
        if self._outcome is not None:
            return None, self._read_reward(self._outcome), True, False, {**info, **self._outcome}
        if self._turn != self._seat:
            return None, 0.0, False, False, {**info, "asks": self._telling}
        return self._telling, 0.0, False, False, info

    def _read_reward(self, outcome: dict[str, Any]) -> float:
        reward = outcome["rewards"][self._seat]
        if isinstance(reward, str):
            # Countdown, Cryptarithm, Slitherlink and ThreeCardMonte of 0.7.4 swap reward and reason of an illegal move.
            reward = outcome["game_info"][self._seat]["reason"].removeprefix("Invalid Move: ")
        return float(reward)


def open_game(env_id: str, env_args: dict[str, Any]) -> Any:
    """Return a game of the library by its name."""
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    if env_id not in ENV_REGISTRY:
        near = ", ".join(map(repr, difflib.get_close_matches(str(env_id), ENV_REGISTRY, n=3)))
        hint = f"did you mean {near}?" if near else "`list_environments()` of catalogue.py lists all that there are"
        raise UnusableGame(f"TextArena has no game {env_id!r}.\nhint: {hint}")
    return textarena.make(env_id, **env_args)


def count_players(env_id: str, env_args: dict[str, Any]) -> int:
    """Return the least number of players that a game can be played with. The library has no other way than to try."""
    drawn = random.getstate()
    least = _LEAST_PLAYERS.get(env_id.split("-v")[0], 1)
    try:
        for players in range(least, _MOST_PLAYERS + 1):
            try:
                open_game(env_id, env_args).reset(num_players=players, seed=0)
            except (AssertionError, ValueError) as error:
                if "player" not in str(error).lower():
                    raise
            else:
                return players
    finally:
        random.setstate(drawn)
    raise UnusableGame(
        f"{env_id!r} cannot be played with up to {_MOST_PLAYERS} players.\nhint: set `players` in the row"
    )


def _join_messages(messages: Any) -> str:
    """Return what the library tells where no wrapper makes a text of it: in the variants `-raw`."""
    return "\n".join(text for _, text, _ in messages)

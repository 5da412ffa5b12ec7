# SPDX-License-Identifier: Apache-2.0
"""A TextArena game with the model in one seat and Gymnasium's interface. This runs in the episode's process.

Scripted players move here. For an opponent that is a model, the game pauses at each of its turns: `info["asks"]` is
what it sees, and the next `step` is its move.
"""

import difflib
import random
from typing import Any

from resources_servers.textarena.scripted_players import POLICIES, ScriptedPlayer, UnusableGame

MODEL = "model"
_MAX_PLAYERS = 6
# These accept any number of players, but are not games for one.
_MIN_PLAYERS = {"QuantumTicTacToe": 2, "SpiteAndMalice": 2, "PublicGoodsGame": 2, "MarketEntryGame": 2}
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
    """A game seen from one seat; the seat's reward comes with the last step."""

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
        self._seat = seat
        self._opponent = opponent
        self._opponent_moves = opponent_moves
        self._others: dict[int, ScriptedPlayer] = {}
        self._opponent_turns: list[dict[str, Any]] = []
        self._outcome: dict[str, Any] | None = None
        self._last_observations: dict[int, str] = {}
        self._turn = 0
        self._prompt = ""

    def reset(self, seed: int) -> tuple[str | None, dict[str, Any]]:
        """Start the game; return what the model sees first."""
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
        """Make the move of the model whose turn it is. If the others have ended the game, ignore the move."""
        if self._outcome is None:
            self._move(text)
            self._play_others()
        return self._describe_turn()

    def _play_others(self) -> None:
        """Continue until it is a model's turn or the game is over."""
        while self._outcome is None:
            self._turn, messages = self._game.get_observation()
            observation = messages if isinstance(messages, str) else _join_messages(messages)
            # Most wrappers repeat everything from the beginning each time.
            news = observation.removeprefix(self._last_observations.get(self._turn, "")).strip() or observation
            self._last_observations[self._turn] = observation
            if self._turn == self._seat:
                self._prompt = news
                return
            if self._opponent == MODEL:
                self._prompt = observation
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
            return None, 0.0, False, False, {**info, "asks": self._prompt}
        return self._prompt, 0.0, False, False, info

    def _read_reward(self, outcome: dict[str, Any]) -> float:
        reward = outcome["rewards"][self._seat]
        if isinstance(reward, str):
            # In 0.7.4, Countdown, Cryptarithm, Slitherlink and ThreeCardMonte swap an illegal move's reward and reason.
            reward = outcome["game_info"][self._seat]["reason"].removeprefix("Invalid Move: ")
        return float(reward)


def open_game(env_id: str, env_args: dict[str, Any]) -> Any:
    """Return the library's game of this id."""
    import textarena
    from textarena.envs.registration import ENV_REGISTRY

    if env_id not in ENV_REGISTRY:
        close = ", ".join(map(repr, difflib.get_close_matches(str(env_id), ENV_REGISTRY, n=3)))
        hint = f"did you mean {close}?" if close else "`list_environments()` of catalog.py lists all games"
        raise UnusableGame(f"TextArena has no game {env_id!r}.\nhint: {hint}")
    return textarena.make(env_id, **env_args)


def count_players(env_id: str, env_args: dict[str, Any]) -> int:
    """Return the smallest number of players for a game. The only way to find out is to try."""
    random_state = random.getstate()
    fewest = _MIN_PLAYERS.get(env_id.split("-v")[0], 1)
    try:
        for players in range(fewest, _MAX_PLAYERS + 1):
            try:
                open_game(env_id, env_args).reset(num_players=players, seed=0)
            except (AssertionError, ValueError) as error:
                if "player" not in str(error).lower():
                    raise
            else:
                return players
    finally:
        random.setstate(random_state)
    raise UnusableGame(
        f"{env_id!r} cannot be played with up to {_MAX_PLAYERS} players.\nhint: set `players` in the row"
    )


def _join_messages(messages: Any) -> str:
    """Return the messages of a `-raw` variant, which no wrapper has joined, as one text."""
    return "\n".join(text for _, text, _ in messages)

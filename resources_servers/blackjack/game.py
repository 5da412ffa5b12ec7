# SPDX-License-Identifier: Apache-2.0
"""A hand of blackjack with one deck: hit or stand, the dealer draws to 17. No splits, doubles or insurance."""

import random
from dataclasses import dataclass, field
from typing import Any, Literal

RANKS = ("A", "2", "3", "4", "5", "6", "7", "8", "9", "10", "J", "Q", "K")
BEST = 21
DEALER_STANDS_AT = 17

Result = Literal["win", "draw", "loss", "bust"]
REWARDS: dict[Result, float] = {"win": 1.0, "draw": 0.0, "loss": -1.0, "bust": -1.0}


@dataclass
class Game:
    """The cards of one hand; suits do not matter and are left out."""

    deck: list[str]
    """What is left to draw, the next card last."""
    player: list[str] = field(default_factory=list)
    dealer: list[str] = field(default_factory=list)

    @classmethod
    def dealt(cls, seed: str) -> "Game":
        """Return the first two cards for each, from a deck that `seed` alone decides."""
        draw = random.Random(seed)
        # Sorting by `random()`, whose sequence Python promises to keep; that of `shuffle` it does not.
        deck = sorted(RANKS * 4, key=lambda _: draw.random())
        game = cls(deck)
        for _ in range(2):
            game.player.append(deck.pop())
            game.dealer.append(deck.pop())
        return game

    def hit(self) -> Result | None:
        """Take a card; the result if that is the end."""
        self.player.append(self.deck.pop())
        return "bust" if value(self.player) > BEST else None

    def stand(self) -> Result:
        """Let the dealer draw, and compare."""
        while value(self.dealer) < DEALER_STANDS_AT:
            self.dealer.append(self.deck.pop())
        mine = value(self.player)
        theirs = value(self.dealer)
        if theirs > BEST or mine > theirs:
            return "win"
        return "draw" if mine == theirs else "loss"

    def seen(self) -> dict[str, Any]:
        """Return what the player knows while the game runs: the dealer's second card is hidden."""
        return {"player": list(self.player), "player_value": value(self.player), "dealer": self.dealer[:1]}

    def shown(self, result: Result) -> dict[str, Any]:
        """Everything, when it is over."""
        return {
            "result": result,
            "player": list(self.player),
            "player_value": value(self.player),
            "dealer": list(self.dealer),
            "dealer_value": value(self.dealer),
        }


def value(hand: list[str]) -> int:
    """Return the value of a hand; an ace counts 11 where that does not bust."""
    total = sum(1 if card == "A" else 10 if card in "JQK" else int(card) for card in hand)
    return total + 10 if "A" in hand and total + 10 <= BEST else total

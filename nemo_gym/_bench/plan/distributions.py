# SPDX-License-Identifier: Apache-2.0
"""Amounts that vary from call to call, as the command line writes them.

    fixed:2s   lognormal:median=2s,sigma=0.5   exponential:mean=300ms   uniform:low=1s,high=3s   2s   400

A plain amount is fixed. Times may end in `us`, `ms`, `s` or `m`; without one they are seconds.
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from nemo_gym.errors import GymError

_AMOUNT = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)\s*(us|µs|ms|s|m|)", re.IGNORECASE)
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "": 1.0}
_FORMS = {
    "fixed": ("value",),
    "lognormal": ("median", "sigma"),
    "exponential": ("mean",),
    "uniform": ("low", "high"),
}
_EXAMPLES = (
    "hint: write for example `2s`, `fixed:300ms`, `lognormal:median=2s,sigma=0.5`, `exponential:mean=1s` or "
    "`uniform:low=1s,high=3s`"
)


class PlanError(GymError):
    """A plan that makes no sense."""


class Distribution(Protocol):
    """An amount that varies."""

    @property
    def mean(self) -> float: ...

    def draw(self, dice: random.Random) -> float: ...


@dataclass(frozen=True)
class Fixed:
    """Always the same."""

    value: float

    @property
    def mean(self) -> float:
        return self.value

    def draw(self, dice: random.Random) -> float:
        return self.value


@dataclass(frozen=True)
class LogNormal:
    """What latencies look like: half of them below the median, and a long tail."""

    median: float
    sigma: float

    @property
    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)

    def draw(self, dice: random.Random) -> float:
        return self.median * math.exp(dice.gauss(0.0, self.sigma))


@dataclass(frozen=True)
class Exponential:
    """Without memory."""

    mean: float

    def draw(self, dice: random.Random) -> float:
        return dice.expovariate(1 / self.mean) if self.mean else 0.0


@dataclass(frozen=True)
class Uniform:
    """Anything between two amounts."""

    low: float
    high: float

    @property
    def mean(self) -> float:
        return (self.low + self.high) / 2

    def draw(self, dice: random.Random) -> float:
        return dice.uniform(self.low, self.high)


@dataclass(frozen=True)
class Observed:
    """What was seen, drawn again."""

    values: Sequence[float]

    @property
    def mean(self) -> float:
        return math.fsum(self.values) / len(self.values)

    def draw(self, dice: random.Random) -> float:
        return dice.choice(self.values)


def parse_distribution(flag: str, text: str) -> Distribution:
    """Read a distribution; PlanError, which names the flag, if it is none."""
    form, colon, rest = text.strip().partition(":")
    if not colon:
        return Fixed(parse_amount(flag, text))
    if form not in _FORMS:
        raise PlanError(f"{flag} {text!r}: there is no distribution {form!r}.\nknown: {', '.join(_FORMS)}\n{_EXAMPLES}")
    names = _FORMS[form]
    given = dict(part.partition("=")[::2] for part in rest.split(",")) if "=" in rest else {names[0]: rest}
    if given.keys() != set(names):
        raise PlanError(
            f"{flag} {text!r}: {form} takes {' and '.join(names)}.\ngiven: {', '.join(given) or 'nothing'}\n{_EXAMPLES}"
        )
    amounts = {name.strip(): parse_amount(flag, value) for name, value in given.items()}
    if form == "uniform" and amounts["low"] > amounts["high"]:
        raise PlanError(f"{flag} {text!r}: low is above high.\ngiven: {amounts}\n{_EXAMPLES}")
    kinds = {"fixed": Fixed, "lognormal": LogNormal, "exponential": Exponential, "uniform": Uniform}
    found: Distribution = kinds[form](**amounts)
    return found


def parse_amount(flag: str, text: str) -> float:
    """Read a number, or a time in seconds; PlanError, which names the flag, if it is none or negative."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise PlanError(f"{flag}: {text!r} is neither a number nor a time.\nknown units: us, ms, s, m\n{_EXAMPLES}")
    return float(match[1]) * _SECONDS[match[2].lower()]

# SPDX-License-Identifier: Apache-2.0
"""Seeds of requests that bring none of their own."""

import hashlib
import secrets
from array import array
from collections import OrderedDict
from collections.abc import Sequence

_KEPT = 1 << 16
_BITS = 31


class Seeds:
    """Random seeds; or, from a seed in the config, ones that make a run repeatable.

    The nth request with the same prompt gets the same seed in every run, whatever is asked in between, and repeats of
    a prompt differ. Of very many prompts those that were not seen for long are forgotten, and start anew.
    """

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._asked: OrderedDict[bytes, int] = OrderedDict()

    def next(self, prompt: Sequence[int]) -> int:
        """Return the seed of the next request with `prompt`."""
        if self._seed is None:
            return secrets.randbits(_BITS)
        prompt_hash = hashlib.blake2b(array("q", prompt).tobytes(), digest_size=16).digest()
        times = self._asked.pop(prompt_hash, 0)
        self._asked[prompt_hash] = times + 1
        if len(self._asked) > _KEPT:
            self._asked.popitem(last=False)
        mixed = hashlib.blake2b(f"{self._seed} {times} ".encode() + prompt_hash, digest_size=8).digest()
        return int.from_bytes(mixed) >> (64 - _BITS)

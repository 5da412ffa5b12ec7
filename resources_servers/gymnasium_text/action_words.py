# SPDX-License-Identifier: Apache-2.0
"""Find the action in a reply."""

import re
from collections.abc import Sequence

from nemo_gym import grading

_EDGES = " \t\n.,;:!?\"'`*_()[]<>"


def read_action(text: str, names: Sequence[str]) -> str | None:
    r"""Return the action among `names` in a reply, from `<action>` tags, `\boxed{}` or plain words; None if unclear.

    The last tags or box count. Plain words are clear if the whole reply or its last line is the name of an action, or
    if the reply names only one action. Case and surrounding punctuation do not matter.
    """
    by_word = {name.casefold(): name for name in names}
    marked = grading.tagged(text, "action") or grading.boxed(text)
    if marked is not None:
        return by_word.get(_clean(re.sub(r"\\text\{(.*)\}", r"\1", marked)))
    last_line = text.strip().rpartition("\n")[2]
    for said in (text, last_line):
        if (found := by_word.get(_clean(said))) is not None:
            return found
    named = {word for word in by_word if re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text.casefold())}
    return by_word[named.pop()] if len(named) == 1 else None


def _clean(said: str) -> str:
    return said.strip(_EDGES).casefold()

# SPDX-License-Identifier: Apache-2.0
"""Join the model calls of a rollout into token sequences for training, exactly as the engine saw them.

A call continues a sequence if its prompt begins with every token of that sequence: then it is *clean*. Often it does
not, because the history traveled as text and was tokenized again. If the text is the same, the engine's own ids are put
back, and the sequence is *realigned*. If the text differs (an edited history, dropped reasoning), or cannot be
compared, the call begins its own branch: the rollout is *forked*, and both branches are kept. Nothing here tokenizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Drift = Literal["clean", "realigned", "forked"]
Decode = Callable[[Sequence[int]], str]
"""Returns the text of token ids, including special tokens."""
_NOT_TEXT = "\ufffd"
_LONGEST_CHARACTER = 4  # bytes in UTF-8, each of which may be a token
_GLANCE = 64
"""Comparing this many ids is enough to tell most texts apart, so that long ones are rarely decoded in vain."""


@dataclass(slots=True)
class Turn:
    """One model call: what the engine read, what it wrote, and with which log-probs."""

    prompt_ids: list[int]
    generated_ids: list[int]
    log_probs: list[float]
    """One for each of `generated_ids`."""
    source: str
    """Where the tokens were found: `response`, `token_capture`, `model_call_capture` or `session`."""
    model: str | None = None
    call_id: str | None = None
    policy_version: int | None = None
    """The version of the weights in force when the call began, if the model server knew it."""
    policy_version_end: int | None = None
    """The version when the call ended, if it had changed: both may have written the turn."""

    @property
    def policy_versions(self) -> list[int]:
        """The versions that may have written it, in order; empty if unknown."""
        return [version for version in (self.policy_version, self.policy_version_end) if version is not None]


def find_turn(turns: Sequence[Turn], prompt_ids: object, generated_ids: object, first: int = 0) -> int | None:
    """Return the number of the turn with these tokens, from `first` on; None if there is none."""
    for number in range(first, len(turns)):
        turn = turns[number]
        # Usually the lists are the same objects, which saves comparing them.
        if turn.generated_ids is generated_ids and turn.prompt_ids is prompt_ids:
            return number
        if turn.generated_ids == generated_ids and turn.prompt_ids == prompt_ids:
            return number
    return None


@dataclass(slots=True)
class Branch:
    """A token sequence that grew from turn to turn: the first prompt, then what the model and its environment said."""

    prompt_ids: list[int]
    completion_ids: list[int] = field(default_factory=list)
    mask: list[int] = field(default_factory=list)
    """For each of `completion_ids`: 1 if the model wrote it, 0 if it came from the environment or the template."""
    log_probs: list[float] = field(default_factory=list)
    """For each of `completion_ids`; 0.0 where the mask is 0."""
    turns: list[int] = field(default_factory=list)
    """The turns of the rollout that it consists of."""
    realigned_turns: list[int] = field(default_factory=list)
    """Those of `turns` that read a retokenized history, which was replaced by the generated ids."""
    parent: int | None = None
    """The branch with which it shares the longest prefix; None for the first, or if they share nothing."""
    shared_ids: int = 0
    """How many ids it has in common with its parent."""
    starts: list[int] = field(default_factory=list)
    """For each of `turns`: where the model's text begins in `completion_ids`."""
    last_read: list[int] = field(default_factory=list, compare=False, repr=False)
    """The prompt of the last turn as the engine read it: the same text as `ids` up to the last of `starts`."""

    @property
    def ids(self) -> list[int]:
        return self.prompt_ids + self.completion_ids

    def find_generated(self, turns: Sequence[Turn]) -> list[tuple[int, int]]:
        """Return where the tokens of each of its turns begin and end in `completion_ids`; `turns` are the rollout's."""
        sizes = [len(turns[number].generated_ids) for number in self.turns]
        return [(start, start + size) for start, size in zip(self.starts, sizes, strict=True)]

    def append(self, context_ids: Sequence[int], turn: Turn, number: int) -> None:
        """Add what the environment said, and then the turn."""
        if context_ids:
            self.completion_ids += context_ids
            self.mask += [0] * len(context_ids)
            self.log_probs += [0.0] * len(context_ids)
        self.starts.append(len(self.completion_ids))
        self.last_read = turn.prompt_ids
        self.completion_ids += turn.generated_ids
        self.mask += [1] * len(turn.generated_ids)
        self.log_probs += turn.log_probs
        self.turns.append(number)


def join_turns(
    turns: Sequence[Turn], decode: Decode | None = None, places: Sequence[int] | None = None
) -> list[Branch]:
    """Return the branches of a rollout, in the order in which they began. Every turn is in exactly one of them.

    Without `decode`, texts cannot be compared, so a retokenized history is a fork. `places`, if known, says to which
    branch each turn belongs.
    """
    branches: list[Branch] = []
    decode = None if decode is None else _cache_short_texts(decode)
    for number, turn in enumerate(turns):
        candidates = branches if places is None else branches[places[number] : places[number] + 1]
        if _continue_branch(candidates, turn, number, decode):
            continue
        branch = Branch(prompt_ids=turn.prompt_ids)
        for place, other in enumerate(branches):
            shared = count_common_prefix(turn.prompt_ids, other.ids)
            if shared > branch.shared_ids:
                branch.parent = place
                branch.shared_ids = shared
        branch.append([], turn, number)
        branches.append(branch)
    return branches


def classify(branches: Sequence[Branch]) -> Drift | None:
    """Return the worst thing that happened to the tokens of a rollout; None if it has none."""
    if len(branches) > 1:
        return "forked"
    if not branches:
        return None
    return "realigned" if branches[0].realigned_turns else "clean"


def count_common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the common prefix."""
    low = 0
    high = min(len(first), len(second))
    while low < high:  # comparing whole halves is much faster than one by one
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _continue_branch(branches: Sequence[Branch], turn: Turn, number: int, decode: Decode | None) -> bool:
    """Add the turn to the branch that it continues, the longest if there are several; return False if there is none."""
    by_length = branches
    if len(branches) > 1:
        by_length = sorted(branches, key=lambda one: len(one.prompt_ids) + len(one.completion_ids), reverse=True)
    prompt_ids = turn.prompt_ids
    for branch in by_length:
        start = len(branch.prompt_ids)
        end = start + len(branch.completion_ids)
        if prompt_ids[:start] == branch.prompt_ids and prompt_ids[start:end] == branch.completion_ids:
            branch.append(prompt_ids[end:], turn, number)
            return True
    if decode is None:
        return False
    for branch in by_length:
        read = _find_end_of_history(branch, prompt_ids, decode)
        if read is not None:
            branch.append(prompt_ids[read:], turn, number)
            branch.realigned_turns.append(number)
            return True
    return False


def _find_end_of_history(branch: Branch, prompt_ids: Sequence[int], decode: Decode) -> int | None:
    """Return how many ids of the prompt are the text of the branch; None if it begins with another text.

    An engine tokenizes text that it has read before as it did before, so usually only the last turn is compared.
    """
    ids = branch.ids
    read = branch.last_read
    start = len(branch.prompt_ids) + branch.starts[-1]
    if not read or ids[start - 1] != read[-1] or prompt_ids[: len(read)] != read:
        return find_same_text(ids, prompt_ids, decode)
    known = len(read) - 1  # compare the last shared token too: the first token of a text may be decoded differently
    end = find_same_text(ids[start - 1 :], prompt_ids[known:], decode)
    return None if end is None else known + end


def _cache_short_texts(decode: Decode) -> Decode:
    """Return `decode` with a cache for short texts, which are compared again for every later turn."""
    known: dict[str, str] = {}

    def decode_once(ids: Sequence[int]) -> str:
        if len(ids) > _GLANCE:
            return decode(ids)
        key = repr(ids)  # the ids in a third-party row need not be hashable
        if key not in known:
            known[key] = decode(ids)
        return known[key]

    return decode_once


def find_same_text(so_far: Sequence[int], prompt_ids: Sequence[int], decode: Decode) -> int | None:
    """Return how many ids of the prompt are the text of `so_far`, tokenized differently; None if the texts differ.

    None too if a token spans the end of that text and what follows, because it cannot be split.
    """
    common = count_common_prefix(so_far, prompt_ids)
    # Start at the last shared token, because some tokenizers drop the space before the first word of a text.
    start = max(0, common - 1)
    if not _may_be_same(so_far[start : start + _GLANCE], prompt_ids[start : start + _GLANCE], decode):
        return None
    wanted = decode(so_far[start:])
    if _NOT_TEXT in wanted and start > 0:  # this token may be the second half of a character
        start = 0
        wanted = decode(so_far)
    # Bytes that are not text all look the same, so they cannot be compared.
    if _NOT_TEXT in wanted or not decode(prompt_ids[start:]).startswith(wanted):
        return None
    low = common
    high = len(prompt_ids)
    while low < high:  # the text grows with the ids: find the fewest that give as many characters
        middle = (low + high) // 2
        if len(decode(prompt_ids[start:middle])) < len(wanted):
            low = middle + 1
        else:
            high = middle
    # The last character may span several tokens, the first of which already counts as a character.
    ends = range(low, min(low + _LONGEST_CHARACTER, len(prompt_ids) + 1))
    return next((end for end in ends if decode(prompt_ids[start:end]) == wanted), None)


def _may_be_same(first: Sequence[int], second: Sequence[int], decode: Decode) -> bool:
    """Return whether one text may begin with the other, which may end within a character."""
    one = decode(first)
    other = decode(second)
    surely = max(0, min(len(one), len(other)) - _LONGEST_CHARACTER)
    return one[:surely] == other[:surely]

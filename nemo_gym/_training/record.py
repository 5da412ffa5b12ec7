# SPDX-License-Identifier: Apache-2.0
"""One trainable rollout, read from a row of a rollouts file, from a model's answers, or from its own JSON.

Rows come from others: what cannot be used makes a rollout invalid, with a reason, and never raises. A failed rollout
has no reward at all, so that nobody can mistake it for a zero.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nemo_gym._servers.policy_versions.marks import (
    POLICY_VERSION_END_FIELD,
    POLICY_VERSION_FIELD,
    read_described_versions,
)
from nemo_gym._training.alignment import Branch, Decode, Drift, Turn, classify, join_turns
from nemo_gym._training.capture.call_records import list_answer_items
from nemo_gym._training.handover import carries_turn, read_turn, rejoin_turns, restore_items
from nemo_gym._util.json_shapes import as_int, as_list, as_mapping, as_number
from nemo_gym._util.row_keys import (
    AGENT_REF_KEY_NAME,
    FAILURE_KEY,
    MASK_SAMPLE_KEY,
    NG_CUT_OFF_KEY,
    NG_FAILURE_CLASS_KEY,
    NG_POLICY_VERSIONS_KEY,
    RESPONSE_KEY_NAME,
    REWARD_KEY_NAME,
    ROLLOUT_ID_KEY_NAME,
    ROLLOUT_INDEX_KEY_NAME,
    TASK_INDEX_KEY_NAME,
    TOKEN_CAPTURE_KEY,
    TOKEN_DRIFT_KEY,
    TRAJECTORY_KEY,
)
from nemo_gym.errors import GymError

SCHEMA = 1
_TURN_FIELDS = tuple(one.name for one in fields(Turn))
_BRANCH_FIELDS = tuple(one.name for one in fields(Branch) if one.compare)
"""What is stored of a branch; the rest is only needed while turns are joined."""


class TrainableRolloutError(GymError, ValueError):
    """A stored trainable rollout cannot be read."""


@dataclass(slots=True)
class TrainableRollout:
    """A rollout with everything a trainer may need. Rewards belong to the rollout, tokens to its branches."""

    task_index: int
    rollout_index: int
    agent: str | None = None
    rollout_id: str | None = None
    reward: float | None = None
    """None for a failed rollout, which is not part of its group's baseline."""
    reward_components: dict[str, float] = field(default_factory=dict)
    failure: str | None = None
    """The kind of failure; None for a rollout that has a reward."""
    invalid: str | None = None
    """Why it must not be trained on although it has a reward, such as lost tokens; None if it may."""
    cut_off: str | None = None
    """What cut it off: `max_steps` or `length`."""
    group_size: int | None = None
    """How many attempts its group has, if the whole group was read."""
    group_scored: int | None = None
    """How many of them have a reward to train on: those that form the baseline."""
    group_failed: int | None = None
    """How many of them failed."""
    turns: list[Turn] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    row_versions: tuple[int, int] | None = None
    """The first and last policy version in its row, for rollouts whose turns have none."""

    @property
    def group(self) -> tuple[str | None, int]:
        """The group: all attempts of one agent at one task."""
        return self.agent, self.task_index

    @property
    def group_facts(self) -> dict[str, int | None]:
        """How large the group is, and how many of it were scored and failed, as every format states it."""
        return {
            "group_size": self.group_size,
            "group_scored": self.group_scored,
            "group_failed": self.group_failed,
        }

    @property
    def drift(self) -> Drift | None:
        """Whether the turns extend each other token by token; None without tokens."""
        return classify(self.branches)

    @property
    def is_valid(self) -> bool:
        """Whether it has a reward and may be trained on."""
        return self.failure is None and self.invalid is None

    @property
    def main_branch(self) -> Branch | None:
        """The branch of the last turn: the one that ends with the rollout's answer."""
        last = len(self.turns) - 1
        return next((branch for branch in reversed(self.branches) if last in branch.turns), None)

    @property
    def policy_versions(self) -> tuple[int | None, int | None]:
        """The versions of the weights that wrote the first and the last turn, if known."""
        known = [version for turn in self.turns for version in turn.policy_versions]
        if known:
            return known[0], known[-1]
        return self.row_versions or (None, None)

    @property
    def straddles_versions(self) -> bool:
        """Whether more than one version of the weights was involved."""
        known = {version for turn in self.turns for version in turn.policy_versions}
        return len(known or set(self.row_versions or ())) > 1

    @classmethod
    def from_row(cls, row: Mapping[str, Any], decode: Decode | None = None) -> "TrainableRollout":
        """Return the rollout of one row of a rollouts file, or of a failures file.

        `decode` turns token ids into text, to tell retokenized histories from edited ones.
        """
        rollout = cls.from_row_unjoined(row)
        rollout.join(row, decode)
        return rollout

    @classmethod
    def from_row_unjoined(cls, row: Mapping[str, Any], *, is_checked: bool = False) -> "TrainableRollout":
        """Like `from_row`, without branches: enough to tell whether a rollout is valid.

        `is_checked` means that the same row was found valid before, so its tokens are not checked again.
        """
        rollout = cls(
            task_index=row.get(TASK_INDEX_KEY_NAME) or 0,
            rollout_index=row.get(ROLLOUT_INDEX_KEY_NAME) or 0,
            agent=as_mapping(row.get(AGENT_REF_KEY_NAME)).get("name"),
            rollout_id=row.get(ROLLOUT_ID_KEY_NAME),
            cut_off=row.get(NG_CUT_OFF_KEY),
        )
        rollout.failure = _read_failure(row)
        if rollout.failure is None:
            rollout.reward = float(row[REWARD_KEY_NAME])
            components = as_mapping(row.get("reward_components"))
            numbers = {name: as_number(value) for name, value in components.items()}
            rollout.reward_components = {name: value for name, value in numbers.items() if value is not None}
        capture = as_mapping(row.get(TOKEN_CAPTURE_KEY))
        if row.get(MASK_SAMPLE_KEY) or as_mapping(row.get(RESPONSE_KEY_NAME)).get(MASK_SAMPLE_KEY):
            reasons = [str(reason) for reason in as_list(capture.get("incomplete_reasons"))]
            rollout.invalid = "mask_sample"
            if reasons:
                rollout.invalid += f": {', '.join(reasons)}"
        rollout.turns, problem = _read_turns(row, is_checked)
        rollout.invalid = rollout.invalid or problem
        if NG_POLICY_VERSIONS_KEY in row and not any(turn.policy_versions for turn in rollout.turns):
            rollout.row_versions = read_described_versions(row.get(NG_POLICY_VERSIONS_KEY))
        return rollout

    def join(self, row: Mapping[str, Any], decode: Decode | None = None) -> None:
        """Join the turns that were read from `row` into branches."""
        if TOKEN_DRIFT_KEY in row and any(turn.source == "response" for turn in self.turns):
            self.turns, self.branches = rejoin_turns(row, self.turns, decode)
        else:
            self.branches = join_turns(self.turns, decode)

    @property
    def has_tokens(self) -> bool:
        """Whether the model wrote at least one token."""
        return any(turn.generated_ids for turn in self.turns)

    def to_json(self) -> dict[str, Any]:
        """Return the stored form; docs/concepts/trainable-rollouts.md describes it field by field."""
        start, end = self.policy_versions
        return {
            "schema": SCHEMA,
            "task_index": self.task_index,
            "rollout_index": self.rollout_index,
            "agent": self.agent,
            "rollout_id": self.rollout_id,
            "reward": self.reward,
            "reward_components": self.reward_components,
            "failure": self.failure,
            "invalid": self.invalid,
            "cut_off": self.cut_off,
            **self.group_facts,
            "drift": self.drift,
            "policy_version_start": start,
            "policy_version_end": end,
            "turns": [{name: getattr(turn, name) for name in _TURN_FIELDS} for turn in self.turns],
            "branches": [{name: getattr(branch, name) for name in _BRANCH_FIELDS} for branch in self.branches],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> "TrainableRollout":
        """Return what `to_json` stored; raise TrainableRolloutError for another schema or shape."""
        if stored.get("schema") != SCHEMA:
            raise TrainableRolloutError(
                f"a trainable rollout has the schema {stored.get('schema')!r}; this version reads {SCHEMA}.\n"
                "hint: export the rollouts file again with `gym export`"
            )
        derived = {"schema", "drift", "policy_version_start", "policy_version_end", "turns", "branches"}
        versions = {"start": stored.get("policy_version_start"), "end": stored.get("policy_version_end")}
        try:
            turns = [Turn(**turn) for turn in stored["turns"]]
            row_versions = None
            if not any(turn.policy_versions for turn in turns):
                row_versions = read_described_versions(versions)
            return cls(
                row_versions=row_versions,
                **{name: value for name, value in stored.items() if name not in derived},
                turns=turns,
                branches=[Branch(**branch) for branch in stored["branches"]],
            )
        except (KeyError, TypeError) as error:
            raise TrainableRolloutError(
                f"a trainable rollout does not have the fields of schema {SCHEMA}: {error}"
            ) from error


def collect_turns(
    items: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]], source: str, *, is_checked: bool = False
) -> tuple[list[Turn], str | None]:
    """Return the turn of every item that carries tokens, and why the tokens cannot be used, if so.

    An item comes with its context: the answer or the captured entry that names its model and call. `is_checked` means
    that the tokens are known to be usable.
    """
    turns: list[Turn] = []
    for item, around in items:
        if not carries_turn(item):
            continue
        marked = item if POLICY_VERSION_FIELD in item else around
        turn = read_turn(
            item,
            source,
            is_checked=is_checked,
            model=around.get("model"),
            call_id=around.get("model_call_id") or item.get("id") or item.get("call_id"),
            policy_version=as_int(marked.get(POLICY_VERSION_FIELD)),
            policy_version_end=as_int(marked.get(POLICY_VERSION_END_FIELD)),
        )
        if isinstance(turn, str):
            return [], f"turn {len(turns)} {turn}"
        if turn is not None:
            turns.append(turn)
    return turns, None


def _read_turns(row: Mapping[str, Any], is_checked: bool) -> tuple[list[Turn], str | None]:
    """Read the tokens from the most complete source: the token capture, the response, or the captured calls.

    If equal, the response wins if its tokens were handed over, because then it is known how they relate.
    """
    entries = as_list(as_mapping(row.get(TOKEN_CAPTURE_KEY)).get("records"))
    if entries and len(entries) != as_mapping(row.get(TOKEN_DRIFT_KEY)).get("turns"):
        pairs = ((entry, entry) for entry in map(as_mapping, entries))
        return collect_turns(pairs, "token_capture", is_checked=is_checked)
    response = as_mapping(row.get(RESPONSE_KEY_NAME))
    turns, problem = collect_turns(((item, response) for item in restore_items(row)), "response", is_checked=is_checked)
    if turns or problem:
        return turns, problem
    return collect_turns(_list_captured_items(row), "model_call_capture", is_checked=is_checked)


def _list_captured_items(row: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    for call in map(as_mapping, as_list(as_mapping(row.get(TRAJECTORY_KEY)).get("model_calls"))):
        answer = as_mapping(call.get("response"))
        around = {**answer, "model_call_id": call.get("model_call_id")}
        for item in list_answer_items(answer):
            yield item, around


def _read_failure(row: Mapping[str, Any]) -> str | None:
    """Return the kind of failure of a row that has no reward to train on."""
    failure = as_mapping(row.get(FAILURE_KEY))
    kind = failure.get("kind") or row.get(NG_FAILURE_CLASS_KEY)
    if kind or failure:
        return str(kind or "unknown")
    return None if isinstance(row.get(REWARD_KEY_NAME), (int, float)) else "no_reward"

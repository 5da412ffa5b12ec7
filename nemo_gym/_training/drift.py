# SPDX-License-Identifier: Apache-2.0
"""Report how well the tokens of rollouts fit together, per model: clean, realigned or forked, and where they diverge.

A history that travels as text is tokenized again at every turn. If the ids then differ from those the model wrote, a
trainer that joins the turns blindly trains on tokens that nobody sampled. The report says how often.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nemo_gym._results.result_rows import read_results
from nemo_gym._rollouts.outcomes import Row
from nemo_gym._training.alignment import Decode, Turn, count_common_prefix, join_turns
from nemo_gym._training.record import TrainableRollout
from nemo_gym._util.json_shapes import as_mapping, as_text
from nemo_gym._util.row_keys import RESPONSE_KEY_NAME, RESPONSES_CREATE_PARAMS_KEY_NAME

Region = Literal["prompt", "generated", "environment"]
UNKNOWN_MODEL = "(not said)"
_SHOWN_AROUND = 8


@dataclass(frozen=True)
class Divergence:
    """The first place where a turn's prompt differs from the tokens that were read and written before."""

    turn: int
    """Counts from 0; the first turn cannot diverge."""
    position: int
    """How many tokens of the history are the same."""
    region: Region
    """Where the first differing token of the history came from: the prompt, the model, or the environment."""
    before_ids: list[int]
    """The history around that place."""
    read_ids: list[int]
    """The tokens that the turn read there instead."""


def find_divergence(turns: Sequence[Turn]) -> Divergence | None:
    """Return the first place where a turn does not continue what came before; None if all do."""
    branches = join_turns(turns)
    if len(branches) < 2:
        return None
    number = branches[1].turns[0]
    [before] = join_turns(turns[:number])
    read = turns[number].prompt_ids
    position = count_common_prefix(before.ids, read)
    at = position - len(before.prompt_ids)
    region: Region = "environment"
    if at < 0:
        region = "prompt"
    elif before.mask[at]:
        region = "generated"
    start = max(0, position - _SHOWN_AROUND)
    end = position + _SHOWN_AROUND
    return Divergence(number, position, region, before.ids[start:end], read[start:end])


@dataclass
class ModelDrift:
    """How well the tokens of one model's rollouts fit together."""

    model: str
    template: str | None = None
    """The chat template settings in the rollouts' requests."""
    rollouts: int = 0
    clean: int = 0
    realigned: int = 0
    forked: int = 0
    without_tokens: int = 0
    invalid: Counter[str] = field(default_factory=Counter)
    """By reason."""
    failed: int = 0
    branches: int = 0
    tokens: int = 0
    """In all sequences that a trainer would get."""
    trainable_tokens: int = 0
    """Those that the model wrote."""
    first_turns: Counter[int] = field(default_factory=Counter)
    """The turn with the first divergence."""
    regions: Counter[str] = field(default_factory=Counter)
    example: dict[str, Any] | None = None
    versions: Counter[int] = field(default_factory=Counter)
    """Rollouts by the version of the weights that began them."""
    straddling: int = 0
    """Rollouts that involve more than one version."""

    @property
    def trainable_share(self) -> float | None:
        return self.trainable_tokens / self.tokens if self.tokens else None

    def add(self, rollout: TrainableRollout, row: Row, decode: Decode | None) -> None:
        """Count a rollout that was read from `row`, and whose turns are not joined yet."""
        self.rollouts += 1
        if rollout.failure is not None:
            self.failed += 1
            return
        if rollout.invalid is not None:
            self.invalid[rollout.invalid] += 1
            return
        if not rollout.has_tokens:
            self.without_tokens += 1
            return
        rollout.join(row, decode)
        match rollout.drift:
            case "clean":
                self.clean += 1
            case "realigned":
                self.realigned += 1
            case "forked":
                self.forked += 1
        self.branches += len(rollout.branches)
        self.tokens += sum(len(branch.prompt_ids) + len(branch.mask) for branch in rollout.branches)
        self.trainable_tokens += sum(sum(branch.mask) for branch in rollout.branches)
        start, _ = rollout.policy_versions
        if start is not None:
            self.versions[start] += 1
        self.straddling += rollout.straddles_versions
        if rollout.drift != "clean" and (found := find_divergence(rollout.turns)) is not None:
            self.first_turns[found.turn] += 1
            self.regions[found.region] += 1
            self.example = self.example or _describe(rollout, found, decode)

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "template": self.template,
            "rollouts": self.rollouts,
            "clean": self.clean,
            "realigned": self.realigned,
            "forked": self.forked,
            "without_tokens": self.without_tokens,
            "invalid": dict(self.invalid.most_common()),
            "failed": self.failed,
            "branches": self.branches,
            "tokens": self.tokens,
            "trainable_tokens": self.trainable_tokens,
            "trainable_share": self.trainable_share,
            "first_divergence": {
                "turns": {str(turn): count for turn, count in sorted(self.first_turns.items())},
                "regions": dict(self.regions.most_common()),
                "example": self.example,
            },
            "policy_versions": {str(version): count for version, count in sorted(self.versions.items())},
            "straddling": self.straddling,
        }


def report_drift(files: Iterable[Path], decode: Decode | None = None) -> list[ModelDrift]:
    """Return the report for every model and template, by name; a rollout belongs to the model of its last turn."""
    models: dict[tuple[str, str], ModelDrift] = {}
    for path in files:
        for line in read_results(path):
            rollout = TrainableRollout.from_row_unjoined(line.row)
            name = as_mapping(line.row.get(RESPONSE_KEY_NAME)).get("model")
            if rollout.turns:
                name = rollout.turns[-1].model or name
            name = str(name or UNKNOWN_MODEL)
            params = as_mapping(line.row.get(RESPONSES_CREATE_PARAMS_KEY_NAME))
            template = as_text(as_mapping(params.get("metadata")).get("chat_template_kwargs"))
            key = name, template or ""
            found = models.get(key) or models.setdefault(key, ModelDrift(name, template))
            found.add(rollout, line.row, decode)
    return [models[key] for key in sorted(models)]


def _describe(rollout: TrainableRollout, found: Divergence, decode: Decode | None) -> dict[str, Any]:
    texts = {}
    if decode is not None:
        texts = {"before_text": decode(found.before_ids), "read_text": decode(found.read_ids)}
    return {
        "task_index": rollout.task_index,
        "rollout_index": rollout.rollout_index,
        "turn": found.turn,
        "position": found.position,
        "region": found.region,
        "before_ids": found.before_ids,
        "read_ids": found.read_ids,
        **texts,
    }

# SPDX-License-Identifier: Apache-2.0
"""The token ids and log-probs of one model call, those of all calls of a rollout, and how they get into a result row.

How an answer is read, in each dialect and streamed or not, is in `nemo_gym._training.capture.call_records`.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from nemo_gym._servers.policy_versions.marks import pick_marks
from nemo_gym._training.capture.call_records import identify_item, list_answer_items
from nemo_gym._training.handover import count_generated_tokens, note_delivered_tokens
from nemo_gym._util.json_shapes import as_list, as_mapping, as_text
from nemo_gym._util.row_keys import MASK_SAMPLE_KEY as MASK_SAMPLE_KEY, TOKEN_CAPTURE_KEY as TOKEN_CAPTURE_KEY
from nemo_gym._wire.schema.tokens import ALL_TOKEN_FIELDS, REQUIRED_TOKEN_FIELDS

TOKEN_ENTRY_RECORD_SCHEMA_VERSION = 1
TOKEN_FIELDS = REQUIRED_TOKEN_FIELDS


class TokenEntry(BaseModel):
    """The tokens of one answer of a model. Fields that another version wrote are kept."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())

    schema_version: int = TOKEN_ENTRY_RECORD_SCHEMA_VERSION
    rollout_id: str
    model_call_id: str
    model: str = ""
    prompt_token_ids: list[int]
    generation_token_ids: list[int]
    generation_log_probs: list[float]
    """One for each of `generation_token_ids`."""
    routed_experts: Any = None
    output_items: list[dict[str, Any]] = Field(default_factory=list)
    """What the model answered, without the arrays."""
    token_item_index: int | None = None
    """Which of `output_items` carried the arrays."""
    created_at: float = 0.0
    """Unix time in seconds."""

    @field_validator("schema_version")
    @classmethod
    def _refuse_newer(cls, version: int) -> int:
        if version > TOKEN_ENTRY_RECORD_SCHEMA_VERSION:
            raise ValueError(
                f"the token entry has schema version {version}; "
                f"versions up to {TOKEN_ENTRY_RECORD_SCHEMA_VERSION} can be read.\n"
                "hint: use the version of nemo_gym that wrote it, or a newer one"
            )
        return version

    @model_validator(mode="after")
    def _require_equal_lengths(self) -> Self:
        ids = len(self.generation_token_ids)
        log_probs = len(self.generation_log_probs)
        if ids != log_probs:
            raise ValueError(f"generation_token_ids holds {ids} tokens, but generation_log_probs {log_probs}")
        return self


@dataclass(frozen=True)
class TokenCaptureSnapshot:
    """The tokens of one rollout once nothing can be added any more."""

    rollout_id: str
    entries: list[TokenEntry] = field(default_factory=list)
    incomplete: bool = False
    snapshot_id: str = ""
    """Together with `version`, tells `drop` what to delete."""
    version: int = 0
    incomplete_reasons: list[str] = field(default_factory=list)
    """Why tokens are missing, if the source knows."""

    @property
    def complete(self) -> bool:
        return bool(self.entries) and not self.incomplete


def extract_token_fields(item: Any) -> dict[str, Any] | None:
    """Return the token fields of an output item, of a chat message, or of an answer; None unless all three are there.

    Of an answer with several such items, the fields of the last are returned.
    """
    if isinstance(item, BaseModel):
        item = item.model_dump()
    for holder in (as_mapping(item), *reversed(list_answer_items(item))):
        if all(isinstance(holder.get(name), list) for name in TOKEN_FIELDS):
            return {name: holder[name] for name in ALL_TOKEN_FIELDS if holder.get(name) is not None}
    return None


def read_token_entries(answer: Any, rollout_id: str, model_call_id: str) -> list[TokenEntry]:
    """Return one entry for each item of a model's answer that carries tokens. Raises ValidationError for bad ones."""
    if isinstance(answer, BaseModel):
        answer = answer.model_dump()
    items = list_answer_items(answer)
    model = as_text(as_mapping(answer).get("model")) or ""
    output_items = [{name: item[name] for name in item if name not in ALL_TOKEN_FIELDS} for item in items]
    return [
        TokenEntry(
            rollout_id=rollout_id,
            model_call_id=model_call_id,
            model=model,
            output_items=output_items,
            token_item_index=index,
            created_at=time.time(),
            **(pick_marks(item) or pick_marks(answer)),
            **fields,
        )
        for index, item in enumerate(items)
        if (fields := extract_token_fields(item)) is not None
    ]


def merge_token_capture_into_record(
    record: dict[str, Any], tokens: TokenCaptureSnapshot, *, rebuild_response: bool = True
) -> dict[str, Any]:
    """Put a rollout's tokens into its result row; `mask_sample` says that it must not be trained on."""
    entries = tokens.entries
    record[TOKEN_CAPTURE_KEY] = {
        "rollout_id": tokens.rollout_id,
        "n_calls": len({entry.model_call_id for entry in entries}),
        "empty_generation_calls": sum(not entry.generation_token_ids for entry in entries),
        "generated_tokens_captured": sum(len(entry.generation_token_ids) for entry in entries),
        "records": [entry.model_dump(exclude_none=True) for entry in entries],
        "incomplete_reasons": tokens.incomplete_reasons or ["unknown"] * bool(tokens.incomplete),
    }
    rebuilt = not rebuild_response or _put_tokens_back(record.get("response"), entries)
    delivered = count_generated_tokens(list_answer_items(record.get("response")))
    note_delivered_tokens(record[TOKEN_CAPTURE_KEY], delivered)
    record[MASK_SAMPLE_KEY] = bool(record.get(MASK_SAMPLE_KEY)) or not (tokens.complete and rebuilt)
    return record


def _put_tokens_back(response: Any, entries: list[TokenEntry]) -> bool:
    """Give each captured item of `response` its tokens, in order; False if one of them is not there."""
    items = (item for item in as_list(as_mapping(response).get("output")) if isinstance(item, dict))
    for entry in entries:
        index = -1 if entry.token_item_index is None else entry.token_item_index
        keys = set[str]()
        if -1 <= index < len(entry.output_items) > 0:
            keys = identify_item(entry.output_items[index])
        item = next((item for item in items if keys & identify_item(item)), None)
        if item is None:
            return False
        item.update({name: value for name in ALL_TOKEN_FIELDS if (value := getattr(entry, name)) is not None})
        item.update(pick_marks(entry))
    return True


def rollout_carries_token_ids(result: Mapping[str, Any]) -> bool:
    """Return whether an output item of a result already has the tokens that the model generated."""
    output = as_list(as_mapping(result.get("response")).get("output"))
    return any(as_mapping(item).get("generation_token_ids") is not None for item in output)

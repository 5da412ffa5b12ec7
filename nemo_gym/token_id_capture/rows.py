# SPDX-License-Identifier: Apache-2.0
"""What token-id capture puts into a result row, and how many rows of a run may lack it."""

from typing import Any

from nemo_gym._capture.payloads import item_keys
from nemo_gym._util.row_keys import TOKEN_CAPTURE_KEY as TOKEN_CAPTURE_KEY
from nemo_gym.errors import GymError
from nemo_gym.token_id_capture.config import TokenIdCaptureConfig
from nemo_gym.token_id_capture.records import ALL_TOKEN_FIELDS, TokenCaptureSnapshot, TokenEntry

MASK_SAMPLE_KEY = "mask_sample"


class TooManyMaskedSamples(GymError):
    """So many rollouts lack token ids that training on the rest would be a different experiment."""


def merge_token_capture_into_record(
    record: dict[str, Any], tokens: TokenCaptureSnapshot, *, rebuild_response: bool = True
) -> dict[str, Any]:
    """Put a rollout's tokens into its result row; `mask_sample` says that it must not be trained on."""
    record[TOKEN_CAPTURE_KEY] = {
        "rollout_id": tokens.rollout_id,
        "records": [entry.model_dump(exclude_none=True) for entry in tokens.entries],
        "incomplete_reasons": tokens.incomplete_reasons or ["unknown"] * bool(tokens.incomplete),
    }
    rebuilt = not rebuild_response or _put_tokens_back(record.get("response"), tokens.entries)
    record[MASK_SAMPLE_KEY] = not (tokens.complete and rebuilt)
    return record


class MaskFractionGuard:
    """Watches how many samples of a run are masked."""

    def __init__(self, config: TokenIdCaptureConfig) -> None:
        self.config = config
        self.samples = 0
        self.masked = 0

    def observe(self, masked: bool) -> None:
        """Count one sample; raises TooManyMaskedSamples once the share is above what the config allows."""
        self.samples += 1
        self.masked += masked
        limit = self.config.max_mask_fraction
        if limit is None or self.samples < self.config.mask_fraction_min_samples:
            return
        if self.masked > limit * self.samples:
            raise TooManyMaskedSamples(
                f"{self.masked} of {self.samples} rollouts lack token ids; max_mask_fraction is {limit}.\n"
                f"hint: look at {TOKEN_CAPTURE_KEY!r} in the results for the reasons"
            )


def _put_tokens_back(response: Any, entries: list[TokenEntry]) -> bool:
    """Give each captured item of `response` its tokens, in order; False if one of them is not there."""
    output = response.get("output") if isinstance(response, dict) else None
    items = iter([item for item in output if isinstance(item, dict)] if isinstance(output, list) else [])
    for entry in entries:
        index = -1 if entry.token_item_index is None else entry.token_item_index
        keys = item_keys(entry.output_items[index]) if -1 <= index < len(entry.output_items) > 0 else set()
        item = next((item for item in items if keys & item_keys(item)), None)
        if item is None:
            return False
        item.update({name: value for name in ALL_TOKEN_FIELDS if (value := getattr(entry, name)) is not None})
    return True

# SPDX-License-Identifier: Apache-2.0
"""Token-id capture: model servers put the token ids and log-probs of a rollout aside, the collector takes them up.

This keeps long arrays out of every hop between servers. Which calls are captured is said by their URL
(`nemo_gym._util.rollout_paths`).

config     the block `token_id_capture`, the sink and source that it stands for, and the limit that it sets
protocols  what your own sink or source has to offer
records    one captured call, all calls of a rollout, and what a result row gets of them
store      both ends as files in a folder
delivery   the way of a call's tokens from the model server to its sink
"""

from nemo_gym.token_id_capture.config import (
    MaskFractionGuard,
    TokenIdCaptureConfig,
    TooManyMaskedSamples,
    open_token_delivery,
    open_token_sink,
    open_token_source,
)
from nemo_gym.token_id_capture.delivery import (
    CaptureContext,
    TokenDelivery,
    capture_tokens,
    commit_entry,
    current_capture_context,
    install_token_sink,
    install_token_source,
    installed_token_sink,
    installed_token_source,
    register_call_intent,
    reset_token_sink,
    set_token_sink,
)
from nemo_gym.token_id_capture.protocols import RestartableTokenSource, TokenSink, TokenSource
from nemo_gym.token_id_capture.records import (
    MASK_SAMPLE_KEY,
    TOKEN_CAPTURE_KEY,
    TOKEN_ENTRY_RECORD_SCHEMA_VERSION,
    TOKEN_FIELDS,
    TokenCaptureSnapshot,
    TokenEntry,
    extract_token_fields,
    merge_token_capture_into_record,
)
from nemo_gym.token_id_capture.store import TokenCaptureStore, clear_token_captures_for_rollouts

__all__ = [
    "MASK_SAMPLE_KEY",
    "TOKEN_CAPTURE_KEY",
    "TOKEN_ENTRY_RECORD_SCHEMA_VERSION",
    "TOKEN_FIELDS",
    "CaptureContext",
    "MaskFractionGuard",
    "RestartableTokenSource",
    "TokenCaptureSnapshot",
    "TokenCaptureStore",
    "TokenDelivery",
    "TokenEntry",
    "TokenIdCaptureConfig",
    "TokenSink",
    "TokenSource",
    "TooManyMaskedSamples",
    "capture_tokens",
    "clear_token_captures_for_rollouts",
    "commit_entry",
    "current_capture_context",
    "extract_token_fields",
    "install_token_sink",
    "install_token_source",
    "installed_token_sink",
    "installed_token_source",
    "merge_token_capture_into_record",
    "open_token_delivery",
    "open_token_sink",
    "open_token_source",
    "register_call_intent",
    "reset_token_sink",
    "set_token_sink",
]

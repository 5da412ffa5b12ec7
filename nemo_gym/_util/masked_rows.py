# SPDX-License-Identifier: Apache-2.0
"""Why a row is masked: since its reward is no measurement, or only because its tokens are incomplete."""

from collections.abc import Mapping
from typing import Any

from nemo_gym._util.row_keys import FAILURE_KIND_KEY, MASK_SAMPLE_KEY, TOKEN_CAPTURE_KEY, TOKEN_DRIFT_KEY


def has_no_measurement(row: Mapping[str, Any]) -> bool:
    """Return whether whoever scored `row` says that its reward measures nothing, because something else failed.

    A row whose tokens are incomplete is masked too, so that nobody trains on it; its reward counts all the same.
    """
    if not row.get(MASK_SAMPLE_KEY):
        return False
    return bool(row.get(FAILURE_KIND_KEY)) or not (TOKEN_CAPTURE_KEY in row or TOKEN_DRIFT_KEY in row)

# SPDX-License-Identifier: Apache-2.0
"""What this environment has beyond what all have (`tests/environments`): the size of its sets."""

from environments.workplace_assistant.prepare import SPLITS


def test_the_validation_set_has_the_size_that_is_documented():
    assert len(list(SPLITS["validation"]())) == 100

# SPDX-License-Identifier: Apache-2.0
"""The rollouts that exports are measured with are whole: every format takes all of them."""

import pytest

from nemo_gym._bench.exports import write_rollouts
from nemo_gym._training.export import FORMATS, export_rollouts


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_takes_the_rollouts_that_are_measured(name, tmp_path):
    size = write_rollouts(tmp_path / "r.jsonl", 32)
    summary = export_rollouts([tmp_path / "r.jsonl"], name, tmp_path / "out.jsonl")
    assert 5000 < size / 32 < 8000
    assert summary.read == 32
    assert summary.exported == 32 or (name == "dpo" and 0 < summary.exported < 32)
    assert set(summary.drift) == {"clean"}

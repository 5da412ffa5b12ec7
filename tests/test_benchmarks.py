# SPDX-License-Identifier: Apache-2.0
import pickle

import pytest

from nemo_gym.benchmarks import BenchmarkConfig, PrepareError, find_benchmarks
from tests.support.catalog import write_benchmark


def test_benchmarks_are_listed_with_what_their_configs_say(tmp_path, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(tmp_path))
    folder = write_benchmark(tmp_path, "tiny", repeats=4)
    tiny = next(one for one in find_benchmarks() if one.name == "tiny")
    assert tiny == BenchmarkConfig(
        name="tiny",
        path=folder / "config.yaml",
        agent_name="tiny_simple_agent",
        num_repeats=4,
        domain="agent",
        description="Call one tool once and answer with what it says",
    )


def test_an_error_of_a_script_crosses_processes():
    with pytest.raises(PrepareError, match="no network"):
        raise pickle.loads(pickle.dumps(PrepareError("no network")))

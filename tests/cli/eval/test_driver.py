# SPDX-License-Identifier: Apache-2.0
"""A function of the user's own that collects: how it is found, called, and accounted for."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from nemo_gym._rollouts.run_paths import RunPaths
from nemo_gym.cli.eval.driver import count_driven, drive, load_driver
from nemo_gym.errors import ConfigError, GymError
from nemo_gym.rollout_collection import RolloutCollectionConfig

CONFIG = OmegaConf.create({"url": "http://x", "address": "${url}/v1"})


def settings(folder: Path) -> RolloutCollectionConfig:
    return RolloutCollectionConfig(input_jsonl_fpath="in.jsonl", output_jsonl_fpath=str(folder / "r.jsonl"))


def write(path: Path, *rows: dict[str, Any]) -> None:
    keyed = [{"_ng_task_index": number, "_ng_rollout_index": 0, **row} for number, row in enumerate(rows)]
    path.write_text("".join(json.dumps(row) + "\n" for row in keyed))


async def test_a_driver_is_awaited_with_the_settings_and_the_resolved_config(tmp_path):
    seen = []

    async def driver(config: Any, resolved: Any) -> None:
        seen.append((config, resolved))

    given = settings(tmp_path)
    await drive(driver, given, CONFIG)
    assert seen == [(given, {"url": "http://x", "address": "http://x/v1"})]


async def test_a_driver_may_be_a_plain_function(tmp_path):
    seen = []
    await drive(lambda *arguments: seen.append(arguments), settings(tmp_path), CONFIG)
    assert len(seen) == 1


def test_a_driver_is_named_by_module_and_function(tmp_path, monkeypatch):
    (tmp_path / "my_driver.py").write_text("async def collect(config, resolved): ...\nCOUNT = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert load_driver("my_driver:collect") is sys.modules["my_driver"].collect
    for wrong, said in (
        ("my_driver", "`module.path:function`"),
        ("my_driver:nothing", "cannot be loaded"),
        ("no_such_module:collect", "importable"),
        ("my_driver:COUNT", "not a function"),
    ):
        with pytest.raises(ConfigError, match=said):
            load_driver(wrong)


def test_what_a_driver_wrote_is_counted(tmp_path):
    paths = RunPaths.of(tmp_path / "r.jsonl")
    write(paths.output, {"reward": 1.0}, {"reward": 0.0}, {"reward": None})
    write(paths.failures, {"_ng_failure_class": "agent"}, {}, {}, {"_ng_failure_class": "agent"})
    counts = count_driven(paths, "m:f")
    assert (counts.requested, counts.scored, counts.failed, counts.not_played) == (4, 2, 2, 0)
    write(paths.materialized, *[{}] * 10)
    assert count_driven(paths, "m:f").not_played == 6


def test_a_driver_that_wrote_nothing_is_told_where_to_write(tmp_path):
    with pytest.raises(GymError, match="output_jsonl_fpath"):
        count_driven(RunPaths.of(tmp_path / "r.jsonl"), "m:f")

# SPDX-License-Identifier: Apache-2.0
"""`gym demo --train`: what it says while a model learns, and afterwards. That one does is in tests/e2e."""

import dataclasses
import re
import tomllib

import pytest

from nemo_gym import PARENT_DIR
from nemo_gym._results.metrics.paired_comparison import RunRewards, compare_rewards
from nemo_gym.cli import demo_train
from nemo_gym.cli.demo import demo
from nemo_gym.cli.demo_train import Curve, TrainingSettings
from nemo_gym.cli.flags import UsageError
from nemo_gym.errors import GymError


def compare(before, after):
    runs = [RunRewards(name, dict(enumerate(rewards)), {}, None) for name, rewards in (("b", before), ("a", after))]
    return compare_rewards(*runs, 1.0)


RISE = compare([[0.0, 0.0]] * 20, [[1.0, 0.0]] * 10 + [[1.0, 1.0]] * 10)
CHANCE = compare([[0.0, 1.0]] * 20, [[1.0, 0.0]] * 10 + [[1.0, 1.0], [0.0, 0.0]] * 5)


def test_a_missing_library_is_named_with_what_to_install(monkeypatch):
    monkeypatch.setattr(demo_train, "find_spec", lambda name: None if name in ("torch", "trl") else object())
    with pytest.raises(
        GymError, match=r"(?s)not installed here: torch, trl\.\nhint: .*make train-demo.*nemo-gym\[train\]"
    ):
        demo(["++train=true"])


def test_the_extra_holds_all_that_training_needs_but_torch():
    extras = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.match(r"[a-z-]+", requirement)[0] for requirement in extras["train"]}
    assert named == set(demo_train._NEEDED) - {"torch"}


def test_flags_reach_the_training(monkeypatch):
    trained = []
    monkeypatch.setattr(demo_train, "train", lambda settings: trained.append(settings) or 0)
    assert demo(["++train=true"]) == 0
    assert demo(["++train=true", "++seed=2", "++training_steps=5", "++output_jsonl_fpath='a/b'"]) == 0
    assert trained[0] == TrainingSettings()
    assert dataclasses.asdict(trained[1]) == {
        **dataclasses.asdict(trained[0]),
        "seed": 2,
        "steps": 5,
        "folder": trained[1].folder,
    }
    assert str(trained[1].folder) == "a/b"


@pytest.mark.parametrize("given", [["++training_steps=5"], ["++train=true", "++num_repeats=3"]])
def test_flags_that_would_do_nothing_are_refused(given):
    with pytest.raises(UsageError):
        demo(given)


def test_a_step_shows_its_reward_and_what_is_left():
    assert demo_train.describe_step(Curve([0.25, 0.5], [30.0, 10.0]), 10) == (
        "step  2/10  reward 0.50 ██████████··········  about 2.7 min left"
    )


def test_learnt_is_what_cannot_be_chance():
    assert demo_train.has_learned(RISE)
    assert not demo_train.has_learned(CHANCE)
    assert demo_train.describe_difference(RISE).startswith("paired difference +0.750, 95 % interval +0.")


def test_the_curve_is_smoothed_over_the_steps_before():
    assert demo_train.smooth([0.0, 1.0, 1.0], 2) == [0.0, 0.5, 1.0]


def test_the_curve_is_drawn(tmp_path):
    pytest.importorskip("matplotlib", reason="needs matplotlib: `make train-test` has an environment with it")
    file = tmp_path / "curve.png"
    demo_train.draw_curve(Curve([0.1, 0.5, 0.9], [1.0, 1.0, 1.0]), RISE, file)
    assert file.read_bytes().startswith(b"\x89PNG")

# SPDX-License-Identifier: Apache-2.0
import json
import sys

import pytest

from nemo_gym import __version__
from nemo_gym.cli import legacy


@pytest.fixture
def started_as(monkeypatch, capsys):
    """Run this process as if it had been started by another name."""

    def start(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", list(words))
        code = legacy.run_alias()
        return code, *capsys.readouterr()

    return start


@pytest.mark.parametrize("alias", ["/bin/ng_version", "nemo_gym_version", "C:/x/ng_version.exe"])
def test_a_legacy_command_names_its_replacement_and_runs_it(started_as, alias):
    code, out, err = started_as(alias, "+json=true")
    assert (code, json.loads(out)["nemo_gym"]) == (0, __version__)
    assert err.count("\n") == 1
    assert "is deprecated" in err
    assert "`gym --version`" in err


def test_an_unknown_legacy_command_fails_with_the_nearest_one(started_as):
    code, out, err = started_as("/bin/ng_colect_rollouts")
    assert (code, out) == (1, "")
    assert "`ng_colect_rollouts` is not a NeMo Gym command. Did you mean 'ng_collect_rollouts'?" in err


def test_arguments_are_kept(started_as):
    code, _, err = started_as("/bin/ng_validate", "+config_paths=[nowhere.yaml]")
    assert (code, "config file 'nowhere.yaml'" in err) == (1, True)
    assert started_as("/bin/ng_run", "--modle")[0] == 2


def test_help_lists_what_each_stands_for(started_as):
    out = started_as("/bin/nemo_gym_help")[1]
    for name, tokens in legacy.LEGACY.items():
        assert any(line.split() == [f"ng_{name}", "gym", *tokens] for line in out.splitlines())

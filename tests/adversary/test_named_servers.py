# SPDX-License-Identifier: Apache-2.0
"""A command that tests one server tests the one that was named, or none."""

import pytest

from tests.cli.conftest import gym, ports_are_given_back  # noqa: F401  fixtures


@pytest.mark.fault(
    place="Command line",
    fault="`gym env test` is given two servers: NAME and `--resources-server`, or the flag twice",
    outcome="A usage error that names them; exit code 2, and no suite is run.",
)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["example_multi_step", "--resources-server", "mcqa"], "'example_multi_step' and 'resources_servers/mcqa'"),
        (["--resources-server", "mcqa", "example_multi_step"], "'example_multi_step' and 'resources_servers/mcqa'"),
        (["example_multi_step", "+entrypoint=resources_servers/mcqa"], "'example_multi_step' and"),
        (["example_multi_step", "mcqa"], "unexpected word 'mcqa'"),
        (["--resources-server", "mcqa", "--resources-server", "blackjack"], "is given twice"),
    ],
)
def test_no_server_that_was_named_is_passed_over(gym, words, said):  # noqa: F811
    ended = gym("env", "test", *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "hint: " in ended.err

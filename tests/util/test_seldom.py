# SPDX-License-Identifier: Apache-2.0
"""Messages that would come a thousand times."""

from nemo_gym._util.seldom import Seldom


def test_the_first_is_said_and_the_next_says_how_many_were_not():
    now = [0.0]
    seldom = Seldom(10.0, clock=lambda: now[0])
    assert [seldom.passed_over("429") for _ in range(4)] == [0, None, None, None]
    now[0] = 9.9
    assert seldom.passed_over("429") is None
    now[0] = 10.0
    assert seldom.passed_over("429") == 4
    now[0] = 30.0
    assert seldom.passed_over("429") == 0


def test_different_things_are_said_apart():
    seldom = Seldom(10.0, clock=lambda: 0.0)
    assert (seldom.passed_over("429"), seldom.passed_over("503"), seldom.passed_over("429")) == (0, 0, None)

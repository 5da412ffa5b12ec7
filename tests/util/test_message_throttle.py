# SPDX-License-Identifier: Apache-2.0
"""Messages that would come a thousand times."""

from nemo_gym._util.message_throttle import MessageThrottle


def test_the_first_is_said_and_the_next_says_how_many_were_not():
    now = [0.0]
    throttle = MessageThrottle(10.0, clock=lambda: now[0])
    assert [throttle.admit("429") for _ in range(4)] == [0, None, None, None]
    now[0] = 9.9
    assert throttle.admit("429") is None
    now[0] = 10.0
    assert throttle.admit("429") == 4
    now[0] = 30.0
    assert throttle.admit("429") == 0


def test_different_things_are_said_apart():
    throttle = MessageThrottle(10.0, clock=lambda: 0.0)
    assert (throttle.admit("429"), throttle.admit("503"), throttle.admit("429")) == (0, 0, None)

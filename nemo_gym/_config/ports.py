# SPDX-License-Identifier: Apache-2.0
"""Free TCP ports for servers whose config does not name one.

A port is probed by binding to it and let go again, so it is free now, not reserved.
"""

import random
import socket
from collections.abc import Collection


def free_port(low: int, high: int, taken: Collection[int], tries: int) -> int:
    """A port of `low`..`high`, not in `taken`, that nothing listens on."""
    candidates = [port for port in range(low, high + 1) if port not in taken]
    for port in random.sample(candidates, min(tries, len(candidates))):
        if _is_free(port):
            return port
    raise RuntimeError(
        f"found no free port in {low}..{high} after {min(tries, len(candidates))} tries "
        f"({len(taken)} ports of the config are taken).\n"
        "hint: widen the range with `++port_range_low=<port>` and `++port_range_high=<port>`"
    )


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True

# SPDX-License-Identifier: Apache-2.0
"""Verifications a second, and how long they take at 256 at a time, for every environment that knows its own answers.

Sessions are played up to `/verify` first, and only those calls are measured: all at once, each from the moment at which
all are sent. Environments that compute have yardsticks too, in `environment_yardsticks`.
"""

import sys
import time
from dataclasses import dataclass, field

import uvloop

from nemo_gym import component_search_roots
from nemo_gym._bench.environment_yardsticks import yardsticks
from nemo_gym._bench.measure import percentile
from nemo_gym._bench.report import Row
from nemo_gym._bench.verifying import Unmeasured, serving, up_to_verify, verify_all
from nemo_gym.errors import GymError

_AT_ONCE = 256
_VERIFICATIONS = 512
_ENOUGH_S = 1.0


def run() -> list[Row]:
    """All environments here, one after the other."""
    return [row for name in _names() for row in _environment(name)] + yardsticks()


def _names() -> list[str]:
    folders = {path.parent for root in component_search_roots() for path in root.glob("resources_servers/*/app.py")}
    known = (folder for folder in folders if (folder / "generate_data.py").is_file())
    return sorted(folder.name for folder in known if (folder / "configs" / f"{folder.name}.yaml").is_file())


def _environment(name: str) -> list[Row]:
    try:
        sample = uvloop.run(_measure(name))
    except (GymError, Unmeasured) as error:
        print(f"  {name}: not measured: {str(error).splitlines()[0]}", file=sys.stderr)
        return []
    return [
        Row(f"{name}: verifications", sample.count / sample.wall_s, "/s"),
        Row(f"{name}: p99 at {_AT_ONCE} at a time", 1000 * percentile(sample.latencies_s, 0.99), "ms"),
    ]


@dataclass
class _Sample:
    wall_s: float = 0.0
    latencies_s: list[float] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.latencies_s)


async def _measure(name: str) -> _Sample:
    async with serving(name) as subject:
        await verify_all(subject, await up_to_verify(subject, len(subject.rows)))
        sample = _Sample()
        begin = time.perf_counter()
        while sample.count < _VERIFICATIONS and time.perf_counter() - begin < _ENOUGH_S:
            latencies_s = await verify_all(subject, await up_to_verify(subject, _AT_ONCE))
            sample.latencies_s += latencies_s
            sample.wall_s += max(latencies_s)
    return sample

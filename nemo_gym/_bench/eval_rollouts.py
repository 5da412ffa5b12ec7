# SPDX-License-Identifier: Apache-2.0
"""What a rollout costs `gym eval run` as a whole: reading its row, playing it, its line in the journal, its metrics.

CPU of the command's process, in bare POSTs: what many rollouts take beyond what a few take, so that its start, which
`eval_run` measures, is not part of it. `rollouts` measures the middle part alone, in many more rounds.
"""

import aiohttp
import uvloop

from nemo_gym._bench import bare_post
from nemo_gym._bench.eval_run import Command, prepared
from nemo_gym._bench.fake_replies import Settings
from nemo_gym._bench.measure import cpu_of_child
from nemo_gym._bench.report import Row

_FEW = 500
_MANY = 8_500
_CONCURRENCY = 32
_ROUNDS = 3
_CASES = (
    # name, environment, tool calls before the answer, bound in bare POSTs
    ("single-tool", "example_single_tool_call", 1, 8.0),
    ("single-turn", "mcqa", 0, 5.0),
)


def run() -> list[Row]:
    """Rollouts of two kinds."""
    return [row for case in _CASES for row in _measure_case(*case)]


def _measure_case(name: str, environment: str, tool_rounds: int, bound: float) -> list[Row]:
    with prepared(Settings(tool_rounds=tool_rounds), environment) as (command, base_url):
        _cpu_s(command, _FEW)  # writes bytecode
        rounds = sorted(_measure_round(command, base_url) for _ in range(_ROUNDS))
    in_posts, each_s = rounds[_ROUNDS // 2]
    return [
        Row(f"gym eval run, {name}", in_posts, "bare POSTs of CPU a rollout", bound),
        Row(f"gym eval run, {name}", 1e6 * each_s, "µs of CPU a rollout"),
    ]


def _measure_round(command: Command, base_url: str) -> tuple[float, float]:
    """Return the CPU of one rollout: in bare POSTs that were sent before and after, and in seconds."""
    before_s = uvloop.run(_post_s(base_url))
    each_s = (_cpu_s(command, _MANY) - _cpu_s(command, _FEW)) / (_MANY - _FEW)
    after_s = uvloop.run(_post_s(base_url))
    return each_s / ((before_s + after_s) / 2), each_s


async def _post_s(base_url: str) -> float:
    async with aiohttp.ClientSession() as session:
        await bare_post.cost(session, base_url)
        return await bare_post.cost(session, base_url)


def _cpu_s(command: Command, rollouts: int) -> float:
    tasks = command.write_tasks(rollouts)
    argv = command.argv("--input", tasks, "--concurrency", str(_CONCURRENCY), "--quiet")
    return cpu_of_child(argv, command.env, quiet=True)

# SPDX-License-Identifier: Apache-2.0
"""What follows a run of 100,000 rollouts: `gym eval aggregate` and `gym eval profile`, as a user calls them.

Two shapes, few tasks with many rollouts and many tasks with one, beside a bare program that only parses the rollouts
file. CPU seconds and peak memory; how fast the disk is stays out of it.
"""

import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._bench.measure import Samples, in_turns, median_of
from nemo_gym._bench.report import Row

_ROLLOUTS = 100_000
_SHAPES = {"12,500 x 8": 8, "100,000 x 1": 1}
_ROUNDS = 1
_IN_FLIGHT = 256
_TIME_BOUND_S = 10.0
_MEMORY_BOUND_MB = 500.0
_BARE = "import orjson\nfor line in open('r.jsonl', 'rb'): orjson.loads(line)\ncode = 0\n"
_GYM = """
import sys
from nemo_gym.cli.main import own_process, run_command
with own_process():
    code = run_command(sys.argv[1:])
"""
# Not `ru_maxrss`: that counts what the parent held when it started the command.
_REPORT_PEAK = """
import sys
[peak] = [line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')]
open('peak_kb', 'w').write(peak)
sys.exit(code)
"""
_WORDS = [
    "we",
    "compute",
    "the",
    "total",
    "of",
    "both",
    "sides",
    "then",
    "check",
    "that",
    "it",
    "fits",
    "what",
    "was",
    "given",
]


def run() -> list[Row]:
    """Each command on the files of a run in each shape."""
    rows: list[Row] = []
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    for shape, repeats in _SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="perf-results-") as folder:
            path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
            env = {**inherited, "PYTHONPATH": path, "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
            _write_run(Path(folder), repeats)
            cases = {
                "bare": _Command(_BARE, [], env, folder),
                "aggregate": _Command(_GYM, ["eval", "aggregate", "-i", "r.jsonl", "-o", "all.jsonl"], env, folder),
                "profile": _Command(_GYM, ["eval", "profile", "--rollouts", "r.jsonl"], env, folder),
            }
            samples = in_turns(cases, _ROUNDS)
            peak_mb = max(case.peak_mb for name, case in cases.items() if name != "bare")
        rows += _rows(shape, samples, peak_mb)
    return rows


def _rows(shape: str, samples: Samples, peak_mb: float) -> list[Row]:
    both = Samples(both=[sum(pair) for pair in zip(samples["aggregate"], samples["profile"], strict=True)])
    return [
        Row(f"aggregate, {shape}", median_of(samples, "aggregate"), "s CPU"),
        Row(f"profile, {shape}", median_of(samples, "profile"), "s CPU"),
        Row(f"both, {shape}", median_of(both, "both"), "s CPU", _TIME_BOUND_S),
        Row(f"both, {shape}", median_of(both, "both") / median_of(samples, "bare"), "x bare parsing"),
        Row(f"peak memory, {shape}", peak_mb, "MB", _MEMORY_BOUND_MB),
    ]


class _Command:
    """The CPU seconds of a Python command in `folder`; what it prints is dropped."""

    def __init__(self, code: str, arguments: Sequence[str], env: Mapping[str, str], folder: str) -> None:
        # `env -C` gives the child a folder of its own; ours stays where it is.
        self._argv = ["/usr/bin/env", "-C", folder, sys.executable, "-c", code + _REPORT_PEAK, *arguments]
        self._env = dict(env)
        self._peak = Path(folder, "peak_kb")
        self.peak_mb = 0.0

    def __call__(self) -> float:
        quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        pid = os.posix_spawn(self._argv[0], self._argv, self._env, file_actions=quiet)
        _, status, used = os.wait4(pid, 0)
        if status != 0:
            raise RuntimeError(f"{' '.join(self._argv[3:])!r} ended with status {status}")
        self.peak_mb = max(self.peak_mb, int(self._peak.read_text()) / 1024)
        return used.ru_utime + used.ru_stime


def _write_run(folder: Path, repeats: int) -> None:
    """A rollouts file in the order in which rollouts end, a few hundred at a time, and its materialized inputs."""
    chance = random.Random(0)
    texts = [" ".join(chance.choices(_WORDS, k=length)) for length in range(40, 160) for _ in range(5)]
    waiting: list[tuple[float, bytes]] = []
    with open(folder / "r_materialized_inputs.jsonl", "wb") as inputs, open(folder / "r.jsonl", "wb") as rollouts:
        for index, (planned, result) in enumerate(_rollouts(repeats, chance, texts)):
            inputs.write(orjson.dumps(planned) + b"\n")
            waiting.append((index + chance.expovariate(1 / _IN_FLIGHT), orjson.dumps(result) + b"\n"))
        rollouts.writelines(line for _, line in sorted(waiting))


def _rollouts(repeats: int, chance: random.Random, texts: Sequence[str]) -> Iterator[tuple[dict[str, Any], ...]]:
    for task in range(_ROLLOUTS // repeats):
        messages = [{"role": role, "content": chance.choice(texts)} for role in ("system", "user")]
        params = {"input": messages, "temperature": 1.0, "top_p": 0.95, "max_output_tokens": 4096}
        answer = str(chance.randrange(1000))
        row: dict[str, Any] = {
            "question": chance.choice(texts)[:80],
            "expected_answer": answer,
            "responses_create_params": params,
        }
        row |= {"agent_ref": {"type": "responses_api_agents", "name": "simple_agent"}, "_ng_task_index": task}
        for rollout in range(repeats):
            planned = {**row, "_ng_rollout_index": rollout}
            yield planned, {**planned, **_verified(chance, texts, answer, hard=task % 10)}


def _verified(chance: random.Random, texts: Sequence[str], answer: str, hard: int) -> dict[str, Any]:
    right = chance.random() * 10 > hard
    scores = {"library_reward": float(right), "judge_score": round(chance.random(), 3), "turns": chance.randrange(1, 6)}
    found = {"extracted_answer": answer if right else None, "well_formed": chance.random() < 0.9}
    return {"response": _response(chance, texts), "reward": float(right), **scores, **found}


def _response(chance: random.Random, texts: Sequence[str]) -> dict[str, Any]:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": chance.choice(texts)}]}
    text = {"type": "output_text", "text": chance.choice(texts), "annotations": []}
    reply = {"type": "message", "id": f"msg_{chance.getrandbits(64):x}", "role": "assistant", "content": [text]}
    read = chance.randrange(100, 300)
    written = chance.randrange(50, 4000)
    usage: dict[str, Any] = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    usage["input_tokens_details"] = {"cached_tokens": 0}
    return {
        "id": f"resp_{chance.getrandbits(64):x}",
        "object": "response",
        "model": "some-model",
        "output": [thought, reply],
        "tools": [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "usage": usage,
    }

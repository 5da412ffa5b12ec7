# SPDX-License-Identifier: Apache-2.0
"""What it costs to export rollouts of two turns, a tool call and their token ids: 100,000 of them, and every format.

The unit is bare orjson: parse and write every line of the same file once. An export reads the file twice, joins the
turns and writes other records. Each case runs in a process of its own, so that its peak memory is that of the work; how
much of it is due to the number of rows, an export of a few of them tells. CPU time, not wall time. The formats take
turns with bare orjson, round by round, on the few; two of them, one of rollouts and one of groups, export all.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._bench.measure import in_turns, in_unit, ratios_of
from nemo_gym._bench.report import Row
from nemo_gym._training.export import FORMATS, export_rollouts
from nemo_gym._util.garbage import pause_collections

_ROWS = 100_000
_FEW = _ROWS // 25
_ROUNDS = 3
_WHOLE = ("trl", "skyrl")
_REPEATS = 8
_IN_FLIGHT = 256
_BUFFER_BYTES = 1 << 20
_TIMES_BARE = 1 / 0.3
_GROWTH_BYTES = 200.0
_WORDS = ("look", "at", "what", "the", "weather", "is", "like", "and", "say", "how", "warm", "it", "will", "be")


def run() -> list[Row]:
    """Each format against bare orjson on the same lines, and how much memory a further row takes."""
    with tempfile.TemporaryDirectory(prefix="perf-exports-") as folder:
        size = write_rollouts(Path(folder) / "all.jsonl", _ROWS)
        write_rollouts(Path(folder) / "few.jsonl", _FEW)
        names = ("bare", *FORMATS)
        few = in_turns({name: partial(_time_case, folder, name) for name in names}, _ROUNDS)
        peaks = {name: _run_case(folder, "few.jsonl", name)[1] for name in _WHOLE}
        whole = {name: _run_case(folder, "all.jsonl", name) for name in ("bare", *_WHOLE)}
    rows = [Row("a line of the rollouts", size / _ROWS, "bytes")]
    rows.append(Row.of_samples("bare orjson", in_unit(few, "bare", 1e6 / _FEW), "µs of CPU a row"))
    for name in FORMATS:
        rows.append(Row.of_samples(name, ratios_of(few, name, "bare"), "x bare orjson", _TIMES_BARE))
    for name in _WHOLE:
        cpu_s, peak_mb = whole[name]
        grown = 1024**2 * (peak_mb - peaks[name]) / (_ROWS - _FEW)
        rows.append(Row(f"{name}, 100,000 rollouts", cpu_s / whole["bare"][0], "x bare orjson", _TIMES_BARE))
        rows.append(Row(f"{name}, peak memory", peak_mb, "MB"))
        rows.append(Row(f"{name}, memory a further row", grown, "bytes", _GROWTH_BYTES))
    return rows


def write_rollouts(path: Path, rows: int) -> int:
    """Write the rollouts of a run in the order in which they ended; return the size of the file."""
    chance = random.Random(0)
    waiting: list[tuple[float, int]] = [(number + chance.expovariate(1 / _IN_FLIGHT), number) for number in range(rows)]
    with open(path, "wb", buffering=_BUFFER_BYTES) as file:
        return sum(
            file.write(orjson.dumps(_make_row(number, chance), option=orjson.OPT_APPEND_NEWLINE))
            for _, number in sorted(waiting)
        )


def _make_row(number: int, chance: random.Random) -> dict[str, Any]:
    task, rollout = divmod(number, _REPEATS)
    prompt_ids = [chance.randrange(150_000) for _ in range(130)]
    call_ids, said_ids, answer_ids = ([chance.randrange(150_000) for _ in range(size)] for size in (40, 50, 80))
    asked = {"role": "user", "content": " ".join(random.Random(task).choices(_WORDS, k=80))}
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "name": "get_weather", "description": "Look it up.", "parameters": parameters}
    call = {"type": "function_call", "id": "fc_1", "call_id": f"call_{number}", "name": "get_weather"}
    call |= {"arguments": '{"city": "Bern"}', "status": "completed", **_make_tokens(prompt_ids, call_ids, chance)}
    output = {"type": "function_call_output", "call_id": f"call_{number}", "output": '{"celsius": 21}'}
    text = {"type": "output_text", "text": " ".join(chance.choices(_WORDS, k=60)), "annotations": []}
    answer = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [text]}
    answer |= _make_tokens(prompt_ids + call_ids + said_ids, answer_ids, chance)
    return {
        "responses_create_params": {"input": [asked], "tools": [tool], "temperature": 1.0},
        "response": {
            "id": f"resp_{number}",
            "object": "response",
            "model": "policy",
            "output": [call, output, answer],
            "usage": {"input_tokens": 350, "output_tokens": 120, "total_tokens": 470},
        },
        "reward": float(chance.random() < 0.5),
        "reward_components": {"answer": 1.0, "format": 0.0},
        "_ng_task_index": task,
        "_ng_rollout_index": rollout,
        "agent_ref": {"type": "responses_api_agents", "name": "simple_agent"},
    }


def _make_tokens(prompt_ids: list[int], generated_ids: list[int], chance: random.Random) -> dict[str, Any]:
    return {
        "prompt_token_ids": prompt_ids,
        "generation_token_ids": generated_ids,
        "generation_log_probs": [-chance.random() for _ in generated_ids],
    }


def _time_case(folder: str, case: str) -> float:
    return _run_case(folder, "few.jsonl", case)[0]


def _run_case(folder: str, file: str, case: str) -> tuple[float, float]:
    """Return the CPU seconds and the peak memory in MB of one case, in a process of its own."""
    argv = [sys.executable, "-m", __name__, str(Path(folder) / file), case]
    child = subprocess.run(argv, stdout=subprocess.PIPE, check=True)
    figures: dict[str, float] = json.loads(child.stdout)
    return figures["cpu_s"], figures["peak_mb"]


def _measure(source: Path, case: str) -> dict[str, float]:
    target = source.with_name("output.jsonl")
    begin = time.process_time()
    if case == "bare":
        _copy_bare(source, target)
    else:
        with pause_collections():
            export_rollouts([source], case, target)
    cpu_s = time.process_time() - begin
    os.unlink(target)
    # Not `ru_maxrss`: that counts what the parent held when it started this process.
    status = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in status if line.startswith("VmHWM")]
    return {"cpu_s": cpu_s, "peak_mb": int(peak) / 1024}


def _copy_bare(source: Path, target: Path) -> None:
    with (
        open(source, "rb", buffering=_BUFFER_BYTES) as lines,
        open(target, "wb", buffering=_BUFFER_BYTES) as file,
    ):
        for line in lines:
            file.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]), sys.argv[2])))

# SPDX-License-Identifier: Apache-2.0
"""What it costs to collate a dataset: check, measure, and write 100,000 rows of about 2 KB twice, as collating does.

The unit is bare orjson: parse and write every line of the same file once. Both take turns in a process of their own, so
that its peak memory is that of the work. CPU time: a row a core is what counts, not how busy the disk is.
"""

import itertools
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from nemo_gym._bench.measure import in_unit, ratios_of
from nemo_gym._bench.report import Row
from nemo_gym._bench.tasks import weather_task
from nemo_gym._config.dataset_types import DatasetConfig
from nemo_gym._data.collate import collate
from nemo_gym._data.sources import Source
from nemo_gym._data.text_lengths import load_tokenizer

_ROWS = 100_000
_ROUNDS = 5
_BUFFER_BYTES = 1 << 20
_US_A_ROW = 50.0
_TIMES_BARE = 8.0
_PEAK_MB = 300.0


def run() -> list[Row]:
    """Collate against bare orjson, and how much memory it takes."""
    with tempfile.TemporaryDirectory(prefix="perf-datasets-") as folder:
        with open(Path(folder) / "train.jsonl", "wb", buffering=_BUFFER_BYTES) as file:
            size = sum(file.write(orjson.dumps(row) + b"\n") for row in itertools.islice(_rows(), _ROWS))
        child = subprocess.run([sys.executable, "-m", __name__, folder], stdout=subprocess.PIPE, check=True)
    found = json.loads(child.stdout)
    us_a_row = in_unit(found, "collate", 1e6 / _ROWS)
    return [
        Row("a row of the dataset", size / _ROWS, "bytes"),
        Row.of_samples("bare orjson", in_unit(found, "bare", 1e6 / _ROWS), "µs of CPU a row"),
        Row.of_samples("collate", us_a_row, "µs of CPU a row", _US_A_ROW),
        Row.of_samples("collate", [1e6 / each_us for each_us in us_a_row], "rows/s on one core"),
        Row.of_samples("collate", ratios_of(found, "collate", "bare"), "x bare orjson", _TIMES_BARE),
        Row("collate, peak memory", found["peak_mb"], "MB", _PEAK_MB),
    ]


def _rows() -> Iterator[dict[str, Any]]:
    """Rows that share a system prompt and tools; all else in them differs. Words are as common as words are."""
    chosen = random.Random(0)
    syllables = [
        f"{a}{b}" for a in ("b", "ch", "d", "g", "l", "m", "n", "p", "r", "s", "st", "t", "v") for b in "aeiou"
    ]
    words = ["".join(chosen.choices(syllables, k=chosen.randint(1, 4))) for _ in range(20_000)]
    words += [f"{word}{mark}" for word in words[:5_000] for mark in ".,?"]
    weights = list(itertools.accumulate(1 / rank for rank in range(1, len(words) + 1)))
    prompt = " ".join(chosen.choices(words, cum_weights=weights, k=80))
    tools = weather_task()["responses_create_params"]["tools"]
    for number in itertools.count():
        question = " ".join(chosen.choices(words, cum_weights=weights, k=150))
        yield {
            "id": number,
            "responses_create_params": {
                "input": [{"role": "system", "content": prompt}, {"role": "user", "content": question}],
                "tools": tools,
                "temperature": 0.7,
                "max_output_tokens": 1024,
            },
            "uuid": f"{chosen.getrandbits(128):032x}",
            "expected_answer": " ".join(chosen.choices(words, k=4)),
            "category": chosen.choice(("algebra", "geometry", "number theory")),
            "difficulty": chosen.random(),
        }


def _measure(folder: Path) -> dict[str, Any]:
    source = Source("agent", DatasetConfig(name="train", type="train", jsonl_fpath="", license="MIT"), _data(folder))
    cases: dict[str, Callable[[], object]] = {
        "bare": lambda: _bare(_data(folder), folder / "bare.jsonl"),
        "collate": lambda: _collate(source, folder / "collated"),
    }
    samples: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(_ROUNDS):
        for name, case in cases.items():
            begin = time.process_time()
            case()
            samples[name].append(time.process_time() - begin)
    return {**samples, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _collate(source: Source, output: Path) -> None:
    collate([source], output, count_tokens=load_tokenizer())


def _data(folder: Path) -> Path:
    return folder / "train.jsonl"


def _bare(source: Path, target: Path) -> None:
    with open(source, "rb") as lines, open(target, "wb", buffering=_BUFFER_BYTES) as file:
        for line in lines:
            file.write(orjson.dumps(orjson.loads(line), option=orjson.OPT_APPEND_NEWLINE))


if __name__ == "__main__":
    print(json.dumps(_measure(Path(sys.argv[1]))))

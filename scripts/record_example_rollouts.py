# SPDX-License-Identifier: Apache-2.0
"""Record the example rollouts of environments with the embedded model; the arguments name the environments.

Each is a real run of `gym eval run` over the five example rows, so rewards are what a small model earns. Another
machine may get other words: these files are looked at and verified again, never compared byte by byte.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nemo_gym._util.atomic_files import write_atomically
from nemo_gym._util.jsonl_files import dumps_line, read_rows

ROOT = Path(__file__).parents[1]
MAX_OUTPUT_TOKENS = 160


def main(names: list[str]) -> None:
    for name in names:
        data = ROOT / "resources_servers" / name / "data"
        rollouts = sorted(recorded(name), key=lambda row: row["_ng_task_index"])
        write_atomically(data / "example_rollouts.jsonl", b"".join(map(dumps_line, rollouts)))
        print(f"{name}: rewards {[rollout['reward'] for rollout in rollouts]}")


def recorded(name: str) -> list[dict[str, Any]]:
    """One rollout of every example row, by the model that needs no key."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "rollouts.jsonl"
        command = [sys.executable, "-m", "nemo_gym.cli.main", "eval", "run", "--resources-server", name]
        model = ["--model-type", "local_model", "--max-output-tokens", str(MAX_OUTPUT_TOKENS), "--temperature", "0"]
        subprocess.run([*command, *model, "--split", "example", "-o", str(output)], cwd=ROOT, check=True)
        return list(read_rows(output))


if __name__ == "__main__":
    main(sys.argv[1:])

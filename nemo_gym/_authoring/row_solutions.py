# SPDX-License-Identifier: Apache-2.0
"""Asks a server's own `generate_data` for the solutions of rows, with the interpreter that the server runs with.

    python -m nemo_gym._authoring.row_solutions MODULE ROWS OUT

writes a JSON list to the file OUT: one solution for each row of the JSON file ROWS, or `null` if MODULE has none.
The folders of servers are importable, because `nemo_gym` is loaded first.
"""

import importlib
import json
import sys
from pathlib import Path


def main(module_name: str, rows: str, out: str) -> None:
    """Write the solutions."""
    module = importlib.import_module(module_name)
    solution = getattr(module, "solution", None)
    given = json.loads(Path(rows).read_text(encoding="utf-8"))
    found = None if solution is None else [solution(row) for row in given]
    Path(out).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

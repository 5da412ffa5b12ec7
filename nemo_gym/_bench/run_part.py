# SPDX-License-Identifier: Apache-2.0
"""The program of a process that runs one part of `gym bench`: `python -m nemo_gym._bench.run_part NAME RESULT_FILE`."""

import importlib
import sys
import time
import traceback
from pathlib import Path

from nemo_gym._bench.parts import PartResult, write_result
from nemo_gym._bench.report import LeftOut


def run_part(name: str) -> PartResult:
    """Run a part in this process and return what came of it, whatever it was."""
    began = time.perf_counter()
    try:
        rows = tuple(importlib.import_module(f"nemo_gym._bench.{name}").run())
    except LeftOut as reason:
        return PartResult(name, left_out=str(reason))
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "nemo_gym"):
            raise
        return PartResult(name, left_out=f"it needs {missing}.\nhint: pip install {missing}")
    except Exception as error:  # the boundary: whatever a part raises is its result, and other parts go on
        traceback.print_exc()
        return PartResult(name, failure=f"{type(error).__name__}: {error}")
    if not rows:
        return PartResult(name, left_out="it found nothing here that it could measure")
    return PartResult(name, rows, time.perf_counter() - began)


if __name__ == "__main__":
    write_result(Path(sys.argv[2]), run_part(sys.argv[1]))

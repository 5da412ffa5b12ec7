# SPDX-License-Identifier: Apache-2.0
"""A database for MLflow's runs, made once for a test process: making its tables takes seconds.

Tests share it, so each has experiments of its own, by name.
"""

import atexit
import shutil
import tempfile
from functools import cache


@cache
def mlflow_store() -> str:
    """The URI of the database, which goes with the process."""
    folder = tempfile.mkdtemp(prefix="mlflow-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return f"sqlite:///{folder}/runs.db"

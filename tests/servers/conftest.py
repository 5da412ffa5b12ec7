# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable

import psutil
import pytest


@pytest.fixture
def list_new_children() -> Callable[[], list[psutil.Process]]:
    """A function that lists the children of this process which were not there when the test began."""
    before = set(psutil.Process().children())
    return lambda: [child for child in psutil.Process().children() if child not in before]

# SPDX-License-Identifier: Apache-2.0
"""Servers as other people write them, with their own suites, found the way servers outside the clone are found."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

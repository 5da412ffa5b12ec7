# SPDX-License-Identifier: Apache-2.0
"""TRL warns that parts of it may change, and warnings are errors here: which version we suit is tested anyway."""

import os

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # tests share the machine: threads that wait must not spin

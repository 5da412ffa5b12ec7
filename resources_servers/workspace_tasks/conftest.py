# SPDX-License-Identifier: Apache-2.0
"""The tests in `repositories` are part of the tasks: they run where the task is played."""

collect_ignore = ["repositories"]

# SPDX-License-Identifier: Apache-2.0
"""Do not collect the tests in `repositories`: they are part of the tasks."""

collect_ignore = ["repositories"]

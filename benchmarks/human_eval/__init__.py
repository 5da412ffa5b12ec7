# SPDX-License-Identifier: Apache-2.0
"""HumanEval: functions to be completed, tested by assertions."""

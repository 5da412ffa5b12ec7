# SPDX-License-Identifier: Apache-2.0
"""The older name of `workplace_assistant`, for configs and imports that still use it."""

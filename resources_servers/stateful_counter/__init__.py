# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_session_state_mgmt`, for configs and imports that still use it."""

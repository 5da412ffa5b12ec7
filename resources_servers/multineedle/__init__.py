# SPDX-License-Identifier: Apache-2.0
"""The older name of `example_multi_step`, for configs and imports that still use it."""

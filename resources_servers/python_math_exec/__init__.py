# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_with_code`, for configs and imports that still use it."""

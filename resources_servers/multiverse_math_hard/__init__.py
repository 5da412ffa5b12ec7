# SPDX-License-Identifier: Apache-2.0
"""The older name of `math_advanced_calculations`, for configs and imports that still use it."""

# SPDX-License-Identifier: Apache-2.0
"""The older name of `code_gen`, for configs and imports that still use it."""

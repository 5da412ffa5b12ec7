# SPDX-License-Identifier: Apache-2.0
"""Repositories with a bug, scored by hidden tests in a sandbox."""

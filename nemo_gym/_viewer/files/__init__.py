# SPDX-License-Identifier: Apache-2.0
"""Rollouts files, read, queried and interpreted for people."""

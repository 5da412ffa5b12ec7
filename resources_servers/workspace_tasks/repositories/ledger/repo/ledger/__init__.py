# SPDX-License-Identifier: Apache-2.0
"""Accounts with amounts in cents."""

# SPDX-License-Identifier: Apache-2.0
"""Servers in processes: one each, several in one, or several processes for one server."""

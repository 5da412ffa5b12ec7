# SPDX-License-Identifier: Apache-2.0
"""Replies in JSON, YAML, XML, TOML or CSV that must fit a schema."""

# SPDX-License-Identifier: Apache-2.0
"""Calculations with tools that follow other laws than ours."""

# SPDX-License-Identifier: Apache-2.0
"""Versions of the policy's weights: announced to servers, marked on answers, and how old rollouts may get."""

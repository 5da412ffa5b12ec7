# SPDX-License-Identifier: Apache-2.0
"""Plan a day over a chat: events with durations and constraints, answered with the whole calendar."""

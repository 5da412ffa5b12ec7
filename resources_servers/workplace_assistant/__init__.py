# SPDX-License-Identifier: Apache-2.0
"""An office with mail, a calendar, website visits, tasks and customers, and 27 tools to work in it."""

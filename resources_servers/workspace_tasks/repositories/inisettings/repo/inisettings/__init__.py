# SPDX-License-Identifier: Apache-2.0
"""Settings in sections, from files that build on each other."""

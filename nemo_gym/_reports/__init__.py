# SPDX-License-Identifier: Apache-2.0
"""What people look at after a run: an index of its files, an overview, one rollout, a comparison, as data and HTML."""

# SPDX-License-Identifier: Apache-2.0
"""Orders of a shop and the states they go through."""

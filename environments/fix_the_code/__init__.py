# SPDX-License-Identifier: Apache-2.0
"""The environment's config, its rows, and the script that writes more of them."""

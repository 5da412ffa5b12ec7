# SPDX-License-Identifier: Apache-2.0
"""The environment as it is run: config, rows and the script that makes more of them."""

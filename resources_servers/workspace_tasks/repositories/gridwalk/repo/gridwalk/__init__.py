# SPDX-License-Identifier: Apache-2.0
"""Ways through a grid of characters."""

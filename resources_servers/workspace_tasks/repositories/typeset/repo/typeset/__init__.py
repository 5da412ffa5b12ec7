# SPDX-License-Identifier: Apache-2.0
"""Plain text in lines and columns."""

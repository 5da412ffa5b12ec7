# SPDX-License-Identifier: Apache-2.0
"""Half-open intervals of whole numbers, as pairs `(start, end)`."""

# SPDX-License-Identifier: Apache-2.0
"""One right answer, compared as a text."""

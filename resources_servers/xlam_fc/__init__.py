# SPDX-License-Identifier: Apache-2.0
"""Function calling: the right calls with the right arguments, none of which is carried out."""

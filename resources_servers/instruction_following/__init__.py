# SPDX-License-Identifier: Apache-2.0
"""Instructions on the form of a reply that can be checked by rule."""

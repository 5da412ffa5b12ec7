# SPDX-License-Identifier: Apache-2.0
"""An environment of several tool calls: find the synonyms of a term in a long list and report their values in order."""

# SPDX-License-Identifier: Apache-2.0
"""The command line: `gym` (alias `ng`) and the legacy `ng_*` commands."""

# SPDX-License-Identifier: Apache-2.0
"""Generate the reference pages of the documentation site from the code. `hook` adds them to every build."""

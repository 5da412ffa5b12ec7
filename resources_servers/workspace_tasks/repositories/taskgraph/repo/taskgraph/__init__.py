# SPDX-License-Identifier: Apache-2.0
"""Tasks that depend on each other: `{task: [what must come before it]}`."""

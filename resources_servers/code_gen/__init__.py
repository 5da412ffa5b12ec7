# SPDX-License-Identifier: Apache-2.0
"""Programming tasks, scored by running the model's program against unit tests in a sandbox."""

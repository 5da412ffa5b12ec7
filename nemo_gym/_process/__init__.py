# SPDX-License-Identifier: Apache-2.0
"""What belongs to this process: what its environment says, and its one HTTP session. The contract stands on it."""

# SPDX-License-Identifier: Apache-2.0
"""What is ours and stands on the contract: starting the servers of a config, and what a collection asks of them."""

# SPDX-License-Identifier: Apache-2.0
"""Whether an environment keeps to the contract: its test suite, its example data, and its answers when it is called.

Everything here is told what to look at and gives back what it found; starting servers, finding folders and printing is
left to the command line.
"""

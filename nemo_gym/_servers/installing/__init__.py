# SPDX-License-Identifier: Apache-2.0
"""What the folder of a server asks for, and the environments that have it."""

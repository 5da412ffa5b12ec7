# SPDX-License-Identifier: Apache-2.0
"""Fix a bug in a repository; sandboxed hidden tests score the result."""

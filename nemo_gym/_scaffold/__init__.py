# SPDX-License-Identifier: Apache-2.0
"""New environments from templates: names, files and their manifest.

Every scaffold is a worked example that starts and passes its own tests. Which scaffold is wanted and where it goes is
decided by the command line.
"""

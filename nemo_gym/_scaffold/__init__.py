# SPDX-License-Identifier: Apache-2.0
"""New environments from templates: names, files and their manifest.

Every scaffold starts and passes its own tests: a resources server without tools, to be filled in, and a worked example
for those who want to change one. Which scaffold is wanted and where it goes is decided by the command line.
"""

# SPDX-License-Identifier: Apache-2.0
"""The config system: overrides, files and their includes, directives, server detection, defaults.

`parse.py` is the table of contents. Everything here takes its inputs as arguments; reading the command line, the
environment and the process-wide config is left to `nemo_gym.global_config`.
"""

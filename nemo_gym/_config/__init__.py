# SPDX-License-Identifier: Apache-2.0
"""The config system: overrides, files and their includes, directives, server detection, defaults.

`config_parser.py` is the table of contents. Everything here takes its inputs as arguments; `nemo_gym.global_config`
reads the command line, the environment and the process-wide config.
"""

# SPDX-License-Identifier: Apache-2.0
"""What is recorded of the calls to a model while a rollout runs: records, files, metrics and the ASGI middleware.

Explicit arguments in, values out: which directory and whether to capture at all is the contract modules' decision.
"""

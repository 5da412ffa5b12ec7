# SPDX-License-Identifier: Apache-2.0
"""Record the model calls of a running rollout: records, files, metrics and the ASGI middleware.

Explicit arguments in, values out: the public modules decide whether to capture, and into which directory.
"""

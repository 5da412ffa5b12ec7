# SPDX-License-Identifier: Apache-2.0
"""Work that must not run in a server's own process: untrusted code in sandboxes, and heavy computation in workers."""

# SPDX-License-Identifier: Apache-2.0
"""What runs inside a sandbox: a small trusted process that forks a child for every piece of untrusted code.

Started as a script of its own (`zygote.main`) by `sandbox_workers`. It uses the standard library only, because nothing
else of this package can be seen from inside. Linux only.
"""

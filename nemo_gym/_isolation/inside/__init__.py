# SPDX-License-Identifier: Apache-2.0
"""The code that runs inside a sandbox: a small trusted process that forks a child for every piece of untrusted code.

`sandbox_workers` starts it as a script (`zygote.main`). It uses the standard library only, because nothing else of this
package is visible inside. Linux only.
"""

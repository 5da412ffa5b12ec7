# SPDX-License-Identifier: Apache-2.0
"""The reference of the documentation site, written from the code whenever the site is built. `hook` places it."""

# SPDX-License-Identifier: Apache-2.0
"""The sandbox providers, one package each, and the registry that finds them by name."""

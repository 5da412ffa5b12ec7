# SPDX-License-Identifier: Apache-2.0
"""IFEval: instructions whose following can be checked by a program."""

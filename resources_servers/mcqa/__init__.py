# SPDX-License-Identifier: Apache-2.0
"""Multiple choice: lettered options, one of them right."""

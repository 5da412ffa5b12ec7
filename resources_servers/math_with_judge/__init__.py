# SPDX-License-Identifier: Apache-2.0
"""Mathematical questions: a computer algebra system compares the answers, and a judge where it cannot."""

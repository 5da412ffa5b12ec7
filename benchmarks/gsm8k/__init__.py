# SPDX-License-Identifier: Apache-2.0
"""GSM8K: word problems of grade school mathematics."""

# SPDX-License-Identifier: Apache-2.0
"""Small questions with one short answer each: an environment that even the smallest models can half do."""

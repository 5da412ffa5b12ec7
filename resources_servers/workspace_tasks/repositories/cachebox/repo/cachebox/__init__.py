# SPDX-License-Identifier: Apache-2.0
"""A cache with a bound and an expiry. Time is passed in, in seconds, so that it can be tested."""

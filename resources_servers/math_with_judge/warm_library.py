# SPDX-License-Identifier: Apache-2.0
"""Importing this warms the library up: for the process from which workers are forked, and for nobody else."""

from resources_servers.math_with_judge.library import warm_up

warm_up()

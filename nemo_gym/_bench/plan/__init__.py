# SPDX-License-Identifier: Apache-2.0
"""`gym bench plan`: how fast a run will be, what will hold it back, and what it will take, before anyone starts it.

distributions   how long a model call takes, how many tokens it writes: a formula or a file of rollouts
scenario        the rollouts, the endpoint's limits, nodes, workers and cores, and what was measured of this package
bounds          what each resource allows by itself: the smallest one binds
simulate        the queues between them, by simulated events; a rollout may stand for thousands
forecast        all of it for one scenario and for a growing number of nodes, in words
check           three real runs beside their forecasts
"""

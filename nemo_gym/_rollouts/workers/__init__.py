# SPDX-License-Identifier: Apache-2.0
"""Workers of a run: processes here or on Ray that run the rows which the coordinator sends them.

`worker_pool` is the coordinator's side and `worker_desk` the worker's; `worker_messages` defines all messages between
them. `rollout_worker` is the process, which `worker_processes` starts on this machine and `ray_workers` on other nodes;
`run_workers` puts them together for a run.
"""

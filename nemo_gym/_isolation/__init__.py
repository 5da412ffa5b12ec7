# SPDX-License-Identifier: Apache-2.0
"""Work that must not run in a server's own process: untrusted code that a model wrote, and heavy computation.

isolation           which isolation works here (bubblewrap, or the kernel's rules), and what code sees of the system
inside/             the containment itself, from limits to killing the last process; standard library only
sandbox_workers     a sandbox with a warm interpreter, which forks for every program (`nemo_gym.code_execution`)
command_supervisor  one command under the same rules (`nemo_gym.sandbox`, provider `local`)
cpu_workers         processes for trusted code that may hang, forked by `cpu_template` (`nemo_gym.cpu_pool`)
episode_processes   such a process for the environment (`hosted_environment`) of every episode (`nemo_gym.adapters`)
lent_workers        a pool of such processes, each lent to one caller at a time, and the errors of pools
"""

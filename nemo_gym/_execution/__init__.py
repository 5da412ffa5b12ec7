# SPDX-License-Identifier: Apache-2.0
"""Work that must not run in a server's own process: code that a model wrote, contained, and heavy computation.

isolation        which way to keep code apart works here (bubblewrap, or the kernel's rules), and what code sees
inside/          the containment itself, from limits to the last process killed; standard library only
sandbox_workers  a sandbox with a warm interpreter, which forks for every program (`nemo_gym.code_execution`)
supervisor       one command under the same rules (`nemo_gym.sandbox`, provider `local`)
cpu_workers      processes for trusted code that may hang, forked by `cpu_template` (`nemo_gym.cpu_pool`)
workers          a bounded number of any of these processes, lent one at a time, and the errors of pools
"""

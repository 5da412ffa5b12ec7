# SPDX-License-Identifier: Apache-2.0
"""Other projects' trainers on our rollouts, and our environments in other projects' systems. Each module imports its
library when it is used, and names the version of it that it was made for.

playing      tasks in, trainable rollouts out, for a trainer that lives in ordinary synchronous code
lent_models  the model that a trainer holds, lent to a model server of the same process
trl          Hugging Face TRL: `rollout_func` of GRPO
trl_async    Hugging Face TRL: a worker for its asynchronous trainer
live         the servers of a config in the trainer's own process, and rollouts played by the trainer's engine
scoring      rewards of running servers for texts
verl         an agent loop, and a reward function
openrlhf     an agent, and a reward endpoint
art          trajectories and their groups
episodes     episodes in a running resources server, for systems that bring a loop of their own
gymnasium_env  a resources server as a `gymnasium.Env`
openenv      resources servers over the protocol of OpenEnv
"""

# SPDX-License-Identifier: Apache-2.0
"""Other people's trainers on our rollouts. Each module imports its library when it is used, and says for which version
of it it was made.

playing      tasks in, trainable rollouts out, for a trainer that lives in ordinary synchronous code
lent_models  the model that a trainer holds, lent to a model server of the same process
trl          Hugging Face TRL: `rollout_func` of GRPO
trl_async    Hugging Face TRL: a worker for its asynchronous trainer
"""

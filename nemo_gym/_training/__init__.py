# SPDX-License-Identifier: Apache-2.0
"""Rollouts as trainers need them: exact tokens in, one record out, and views of that record for every trainer.

alignment  the turns of a rollout joined into token sequences, without tokenizing anything anew
versions   the policy versions on answers and rows
handover   the tokens of a result row made ready for a trainer that walks through its response, nothing lost
sessions   the sessions of a gateway; one of them: `session_record`
record     one trainable rollout: turns, sequences, reward, validity, policy versions, group
alignment    the turns of a rollout joined into token sequences, without tokenizing anything anew
chat_tokens  conversations as token ids by a chat template, continued without tokenizing again what a model wrote
record       one trainable rollout: turns, sequences, reward, validity, policy versions, group
selection  the groups of some files, and which rollouts of them are wanted
chat_messages, formats, export   the conversation of a row, the formats of trainers, and writing them
tokenizer_files, drift           text of tokens, and the report of how well they fit together
"""

# SPDX-License-Identifier: Apache-2.0
"""Rollouts as trainers need them: exact tokens in, one record out, and views of that record for every trainer.

alignment    joins the turns of a rollout into token sequences, without tokenizing anything again
capture      records model calls while a rollout runs
handover     prepares the tokens of a result row for a trainer that walks through its response, losing nothing
sessions     the sessions of a gateway; a single one is in `session_record`
chat_tokens  turns conversations into token ids with a chat template, never retokenizing what a model wrote
record       one trainable rollout: turns, sequences, reward, validity, policy versions, group
selection    the groups of some files, and which of their rollouts are wanted
chat_messages, formats, export   the conversation of a row, the trainers' formats, and writing them
tokenizer_files, drift           the text of tokens, and the report on how well they fit together
"""

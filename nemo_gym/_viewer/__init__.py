# SPDX-License-Identifier: Apache-2.0
"""What people look at after a run: overviews, rollouts and comparisons, as data, as HTML and in the browser.

A file goes through four stages:

1. read (`files`): `row_facts` extracts the few facts of a line (task, reward, tools, …), `columns` scans a file into
   one array per fact, `file_index` does so in a thread while the file grows, `read_cache` keeps the arrays for next
   time, and `run_companions` finds the plan, the failures and the manifest beside the file.
2. query (`files`): `row_selection` filters, searches, sorts and groups rows over the arrays; `file_queries` uses it to
   answer the viewer's questions, page by page, within a time budget.
3. interpret (`files`): `conversation_blocks`, `reward_explanation`, `rollout_tokens`, `program_work` and `one_rollout`
   turn one row into values; `file_overview`, `rollout_comparison` and `task_ranking` turn whole files into values.
4. render (`html`): the parts of a page, and `report_export`, which writes a folder of such pages.

`page` serves the same parts with Gradio. The arrays hold facts only: a row itself is read from its file on demand, so
memory stays flat.
"""

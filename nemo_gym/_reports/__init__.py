# SPDX-License-Identifier: Apache-2.0
"""What people look at after a run: overviews, rollouts and comparisons, as data and as HTML.

A file goes through four stages, and each module belongs to one of them:

1. read: `row_facts` extracts the few facts of a line (task, reward, tools, …), `columns` scans a file into one array
   per fact, `index` does so in a thread while the file grows, `cache` keeps the arrays for next time, and `run_files`
   finds the plan, the failures and the manifest beside the file.
2. query: `row_selection` filters, searches, sorts and groups rows over the arrays; `query` uses it to answer the
   viewer's questions, page by page, within a time budget.
3. interpret: `conversation`, `scoring`, `tokens`, `program_work` and `rollout` turn one row into values; `overview`,
   `compare` and `task_ranking` turn whole files into values.
4. render: `html_elements` makes escaped tags and charts; `html_block`, `html_program`, `html_rollout` and `html_files`
   build the parts of a page from them, and `export` writes a folder of such pages. `nemo_gym._view` serves the same
   parts with Gradio.

The arrays hold facts only: a row itself is read from its file on demand, so memory stays flat.
"""

# SPDX-License-Identifier: Apache-2.0
"""The viewer's page: a Gradio app over the files that `nemo_gym._reports` reads.

`app.py` and the tabs are Gradio's; they are imported when a page is served, and by nothing else.
"""

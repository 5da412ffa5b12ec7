# SPDX-License-Identifier: Apache-2.0
"""The viewer's page: a Gradio app over the files that `nemo_gym._viewer.files` reads.

`open_files` holds the files that are open. A `Location` is all that decides what the page shows, and is the query of
its URL: links, keys and inputs all come down to a new location. `list_tables` renders the lists at a location and
`panels` the other parts; both write HTML and know nothing of Gradio. `gradio_app` lays the parts out and answers the
page's one question, what to show now; `page.js` asks it and `page.css` dresses the answer. `serve` puts the app on a
port.
"""

# SPDX-License-Identifier: Apache-2.0
"""The viewer's page: a Gradio app over the files that `nemo_gym._reports` reads.

`open_files` holds the files that are open. A `Location` is all that decides what the page shows, and is the query of
its URL: links, keys and inputs all come down to a new location. `tables` renders the lists at a location and `panels`
the other parts; both write HTML and know nothing of Gradio. `app` lays the parts out in Gradio and answers the page's
one question, what to show now; `page.js` asks it and `page.css` dresses the answer. `serve` puts the app on a port.

`app` is Gradio's; it is imported when a page is served, and by nothing else, since that takes seconds.
"""

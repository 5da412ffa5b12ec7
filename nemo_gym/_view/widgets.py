# SPDX-License-Identifier: Apache-2.0
"""Gradio components as this page uses them, in one place for all tabs."""

import gradio as gr

HIDDEN = gr.update(elem_classes="ngp-none")
SHOWN = gr.update(visible=True, elem_classes="")


def panel(name: str, html: str = "") -> gr.HTML:
    """A place for HTML that the page writes itself."""
    return gr.HTML(html, elem_id=name, js_on_load=None, apply_default_css=False)

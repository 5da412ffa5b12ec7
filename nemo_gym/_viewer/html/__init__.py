# SPDX-License-Identifier: Apache-2.0
"""The parts of a page as HTML, for the viewer and for reports.

`elements` makes escaped tags and charts; everything else is built from them.
"""

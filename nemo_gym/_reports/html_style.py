# SPDX-License-Identifier: Apache-2.0
"""How pages look, and the little that they do: one style sheet and one script, both without any tags round them.

A page of its own (class `ngv-page`) follows the reader's system between light and dark; inside another page, the class
`dark` of an element round it decides.
"""

from pathlib import Path

STYLE = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
SCRIPT = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")

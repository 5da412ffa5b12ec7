# SPDX-License-Identifier: Apache-2.0
"""The documentation site as a reader sees it, on a page with our theme and style."""

import shutil
import subprocess
import sys

import pytest
import yaml
from playwright.sync_api import sync_playwright

from nemo_gym import PARENT_DIR
from tests.viewer.browser.conftest import BROWSER_FLAGS, CHROMIUM

PAGE = f"""
# Code

```bash
gym env validate --resources-server {"first_steps " * 12}
```

```text
{"x" * 300}
```
"""
FIND_HIDDEN_CODE = """() => [...document.querySelectorAll('.md-content pre > code')].map(code => {
    const button = code.parentElement.querySelector('button').getBoundingClientRect();
    const text = document.createRange();
    text.selectNodeContents(code);
    const covered = [...text.getClientRects()].some(line => line.right > button.left && line.top < button.bottom);
    return {cut: code.scrollWidth > code.clientWidth, covered};
})"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs a browser")
def test_code_is_not_cut_and_the_copy_button_covers_none(tmp_path):
    theme = {"name": "material", "font": False, "features": ["content.code.copy"]}
    extensions = ["pymdownx.highlight", "pymdownx.superfences"]
    config = {"site_name": "x", "use_directory_urls": False, "theme": theme, "markdown_extensions": extensions}
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**config, "extra_css": ["site.css"], "plugins": []}))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(PAGE)
    shutil.copy(PARENT_DIR / "docs/assets/site.css", tmp_path / "docs")
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "-q"], cwd=tmp_path, check=True, capture_output=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[*BROWSER_FLAGS])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto((tmp_path / "site" / "index.html").as_uri())
        page.wait_for_selector(".md-content pre button", state="attached")
        found = page.evaluate(FIND_HIDDEN_CODE)
        browser.close()
    assert found == [{"cut": False, "covered": False}] * 2

# SPDX-License-Identifier: Apache-2.0
"""What the project says of itself on the web is true and agrees with itself."""

import re
import tomllib

import yaml

from nemo_gym import PARENT_DIR, __version__

PROJECT = tomllib.loads((PARENT_DIR / "pyproject.toml").read_text())["project"]
GITHUB = PARENT_DIR / ".github"


def test_ci_calls_the_same_script_as_everyone_on_every_python_of_the_classifiers():
    (job,) = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"].values()
    promised = [text.split(" :: ")[-1] for text in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", text)]
    assert job["strategy"]["matrix"]["python"] == promised
    assert job["steps"][-1] == {"run": ".ci/run"}
    assert (PARENT_DIR / ".ci" / "run").is_file()


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((PARENT_DIR / "CITATION.cff").read_text())
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])


def test_templates_are_forms_that_github_can_read():
    for name in ("bug", "idea"):
        form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
        assert {"name", "description", "body"} <= form.keys()
        assert all(part["attributes"]["label"] for part in form["body"])


def test_links_of_the_project_files_lead_somewhere():
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#:]+)\)", (PARENT_DIR / name).read_text()):
            assert (PARENT_DIR / target).exists(), f"{name} links to {target}"

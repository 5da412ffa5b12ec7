# SPDX-License-Identifier: Apache-2.0
"""Libraries of trainers are imported when they are used, and a missing one is said with the version to install."""

import subprocess
import sys

import pytest

from nemo_gym.integrations import libraries, openrlhf, verl
from nemo_gym.integrations.libraries import MissingLibrary, import_library


def test_importing_our_side_imports_no_trainer():
    code = (
        "import sys\n"
        "import nemo_gym.integrations.verl, nemo_gym.integrations.openrlhf, nemo_gym.integrations.art\n"
        "heavy = {'verl', 'openrlhf', 'art', 'torch', 'ray', 'vllm', 'transformers', 'openai', 'pyarrow'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=500)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("use", "hint"),
    [
        (lambda: verl.GymAgentLoop, "hint: `pip install verl==0.9.1`"),
        (lambda: openrlhf.AgentExecutor, "hint: `pip install openrlhf==0.11.0`"),
    ],
)
def test_a_trainer_that_is_not_installed_is_named_with_its_version(use, hint):
    with pytest.raises(MissingLibrary, match="installed: no") as raised:
        use()
    assert hint in str(raised.value)


@pytest.mark.parametrize("module", [verl, openrlhf])
def test_other_names_are_missing_as_usual(module):
    with pytest.raises(AttributeError, match="Unknown"):
        module.Unknown  # noqa: B018


def test_a_library_of_another_version_is_used_with_a_warning(caplog):
    assert import_library("yaml", "safe_load", package="PyYAML", version="0.1").safe_load
    assert "made for and tested with 0.1" in caplog.text


def test_a_library_that_lacks_a_name_is_too_different():
    with pytest.raises(MissingLibrary, match="json has no loads_all"):
        import_library("json", "loads_all", package="no-such-package", version="1")
    assert libraries._find_version("no-such-package") is None

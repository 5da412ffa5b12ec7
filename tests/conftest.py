# SPDX-License-Identifier: Apache-2.0
import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings are errors in our own tests; suites of servers may be other people's, with other habits."""
    for item in items:
        if item.path.is_relative_to(item.config.rootpath / "tests"):
            # A library that is compiled for the first time may warn of its own syntax, in whichever test that happens.
            item.add_marker(pytest.mark.filterwarnings("error", "ignore::SyntaxWarning"), append=False)


@pytest.fixture(autouse=True)
def run_tokens_stay_in_the_test(tmp_path, monkeypatch):
    monkeypatch.setenv("NEMO_GYM_RUN_TOKEN_DIR", str(tmp_path / "run-tokens"))

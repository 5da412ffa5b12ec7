# SPDX-License-Identifier: Apache-2.0
import pytest

from nemo_gym._authoring.config_catalog import config_names, find_server_configs, flavor_names, name_benchmark


@pytest.fixture
def tree(tmp_path):
    for name in (
        "benchmarks/aime24/config.yaml",
        "benchmarks/aime24/hard.yaml",
        "benchmarks/aime24/manifest.yaml",
        "benchmarks/aime24/prompts/default.yaml",
        "benchmarks/aime24/data/x.yaml",
        "benchmarks/suite/one/config.yaml",
        "benchmarks/prompts/shared.yaml",
        "benchmarks/stray.yaml",
        "resources_servers/math/configs/math.yaml",
        "resources_servers/math/configs/easy.yaml",
        "resources_servers/code/app.py",
        "resources_servers/shared/README.md",
        "responses_api_models/local/configs/small/tiny.yaml",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def test_a_config_goes_by_its_folder_and_its_variants_by_their_path(tree):
    assert list(config_names(tree / "benchmarks")) == ["aime24", "aime24/hard", "suite/one"]


def test_a_folder_that_is_not_there_holds_nothing(tree):
    assert config_names(tree / "nowhere") == {}
    assert find_server_configs(tree / "nowhere") == {}


def test_a_server_is_a_folder_with_code_or_configs(tree):
    assert {name: len(paths) for name, paths in find_server_configs(tree / "resources_servers").items()} == {
        "code": 0,
        "math": 2,
    }


def test_a_server_config_goes_by_the_server_or_by_its_flavor(tree):
    assert flavor_names("resources_servers", [tree]) == ["math", "math/easy"]
    assert flavor_names("responses_api_models", [tree]) == ["local/small/tiny"]


def test_a_folder_with_code_hides_the_configs_of_a_later_root_and_one_without_adds_to_them(tree, tmp_path):
    first = tmp_path / "first"
    for name in ("resources_servers/math/configs/mine.yaml", "responses_api_models/local/configs/mine.yaml"):
        (first / name).parent.mkdir(parents=True)
        (first / name).touch()
    (first / "resources_servers/math/app.py").touch()
    assert flavor_names("resources_servers", [first, tree]) == ["math/mine"]
    assert flavor_names("responses_api_models", [first, tree]) == ["local/mine", "local/small/tiny"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("benchmarks/aime24/config.yaml", "aime24"),
        ("/somewhere/benchmarks/suite/one/config.yaml", "suite/one"),
        ("benchmarks/aime24/hard.yaml", "aime24/hard"),
        ("resources_servers/math/configs/math.yaml", None),
        ("benchmarks", None),
    ],
)
def test_the_name_of_a_benchmark_is_read_off_its_path(path, name):
    assert name_benchmark(path) == name

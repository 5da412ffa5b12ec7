# SPDX-License-Identifier: Apache-2.0
"""What server folders ask for, and whether an environment meets it."""

import pickle
import tempfile
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from packaging.utils import canonicalize_name

from nemo_gym._servers.installing.requirements import ServerRequirements, find_unmet, read_requirements
from nemo_gym.errors import ConfigError

STANDARD_LINE = "-e nemo-gym[dev] @ ../../"


class Package(Distribution):
    """An installed package that is only its metadata."""

    def __init__(self, name: str, version: str, requires: list[str]) -> None:
        self._headers = Message()
        self._headers["Name"], self._headers["Version"] = name, version
        for text in requires:
            self._headers["Requires-Dist"] = text

    @property
    def metadata(self):
        return self._headers

    @property
    def requires(self):
        return self._headers.get_all("Requires-Dist")

    def read_text(self, filename):
        return None

    def locate_file(self, path):
        raise NotImplementedError


def environment(*packages: str, **requires: list[str]):
    """`environment("a==1", "b==2", a=["c; extra == 'x'"])`: a finder of packages, as `find_unmet` takes it."""
    known = {
        canonicalize_name(name): Package(name, version, requires.get(name, []))
        for name, version in (package.split("==") for package in packages)
    }
    return lambda name: known.get(canonicalize_name(name))


def server(folder: Path, **files: str) -> ServerRequirements:
    """Read a folder with the given files; `requirements_txt` is `requirements.txt`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("_txt", ".txt").replace("_toml", ".toml").replace("_py", ".py")).write_text(content)
    return read_requirements(folder)


def anywhere(requirements_txt: str) -> ServerRequirements:
    with tempfile.TemporaryDirectory() as folder:
        return server(Path(folder), requirements_txt=requirements_txt)


def test_the_standard_line_asks_for_nothing(tmp_path):
    requirements = server(tmp_path, requirements_txt=f"{STANDARD_LINE}\n")
    assert requirements.lines == ()
    assert requirements.own_extras == {"dev"}
    assert find_unmet(requirements, find=environment()) is None


def test_the_test_suite_of_a_server_needs_the_dev_extra(tmp_path):
    requirements = server(tmp_path, requirements_txt=STANDARD_LINE)
    without = environment("nemo-gym==1.0", **{"nemo-gym": ["pytest>=8; extra == 'dev'"]})
    assert find_unmet(requirements, dev=True, find=without) == (
        "pytest>=8 is not installed (asked for by nemo-gym[dev])"
    )
    assert find_unmet(requirements, dev=False, find=without) is None


@pytest.mark.parametrize(
    "line",
    [
        "nemo_gym",
        "NeMo.Gym[dev]>=9.9",
        "nemo-gym @ git+https://example.org/gym",
        "-e ../..",
        "-e ../../[dev]",
        "--editable=../../",
    ],
)
def test_nemo_gym_is_always_the_running_one_however_it_is_asked_for(tmp_path, line):
    requirements = server(tmp_path / "resources_servers" / "x", requirements_txt=line)
    assert requirements.lines == ()
    assert requirements.own_extras == ({"dev"} if "dev" in line else set())


@pytest.mark.parametrize(
    ("line", "installed", "reason"),
    [
        ("math-verify==0.7.0", [], "math-verify==0.7.0 is not installed"),
        ("math-verify==0.7.0", ["math-verify==0.8.0"], "math-verify 0.8.0 does not satisfy ==0.7.0"),
        ("math-verify==0.7.0", ["math-verify==0.7.0"], None),
        ("six", ["six==1.0rc1"], None),
        ("six>=2  # why", ["six==1"], "six 1 does not satisfy >=2"),
        ("six; python_version < '3'", [], None),
        ("six==1 --hash=sha256:00", ["six==1"], None),
        ("six @ https://example.org/six.whl", ["six==1"], "six comes from a path or URL"),
        ("six @ https://example.org/six.whl ; python_version < '3'", [], None),
        ("git+https://user:secret@example.org/six", ["six==1"], "it installs from a path or URL"),
        ("./vendored", [], "it installs from a path or URL"),
        ("-e vendored", ["vendored==1"], "it installs from a path or URL"),
        ("six-1.0-py3-none-any.whl", ["six==1"], "it installs from a path or URL"),
        ("-r https://example.org/requirements.txt", [], "it installs from a path or URL"),
        ("--extra-index-url https://example.org/simple", [], None),
    ],
)
def test_a_line_is_met_or_there_is_a_reason(tmp_path, line, installed, reason):
    requirements = server(tmp_path, requirements_txt=f"{STANDARD_LINE}\n{line}\n")
    assert find_unmet(requirements, find=environment(*installed)) == reason


def test_the_extras_of_a_package_must_be_met_too(tmp_path):
    requirements = server(tmp_path, requirements_txt="ray[default]")
    ray = {"ray": ["grpcio", "aiohttp_cors>=1; extra == 'default'", "gym; extra == 'rllib'"]}
    assert find_unmet(requirements, find=environment("ray==2", **ray)) == (
        "aiohttp_cors>=1 is not installed (asked for by ray[default])"
    )
    assert find_unmet(requirements, find=environment("ray==2", "aiohttp_cors==1.2", **ray)) is None


def test_an_extra_that_asks_for_itself_does_not_go_round_in_circles(tmp_path):
    requirements = server(tmp_path, requirements_txt="a[all]")
    assert find_unmet(requirements, find=environment("a==1", a=["a[all]; extra == 'all'"])) is None


def test_included_files_count(tmp_path):
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "base.txt").write_text("six==1\n-r ../requirements.txt\n")
    requirements = server(tmp_path, requirements_txt="-r more/base.txt\nattrs\n")
    assert requirements.texts == ("attrs", "six==1")


def test_a_missing_included_file_is_named_with_its_line(tmp_path):
    with pytest.raises(ConfigError, match=r"requirements.txt', line 2 includes 'nowhere.txt'"):
        server(tmp_path, requirements_txt="six\n-r nowhere.txt\n")


def test_a_constraint_binds_only_what_is_there(tmp_path):
    (tmp_path / "limits.txt").write_text("numpy<2\n")
    requirements = server(tmp_path, requirements_txt="-c limits.txt\n")
    assert find_unmet(requirements, find=environment()) is None
    assert find_unmet(requirements, find=environment("numpy==2.1")) == "numpy 2.1 does not satisfy <2"


def test_an_override_takes_the_place_of_a_line(tmp_path):
    requirements = server(tmp_path, requirements_txt="six==1\n", overrides_txt="six==2\npydantic<2\n")
    assert find_unmet(requirements, find=environment("six==2")) is None
    assert find_unmet(requirements, find=environment("six==1")) == "six 1 does not satisfy ==2"
    assert find_unmet(requirements, find=environment("six==2", "pydantic==2.0")) == "pydantic 2.0 does not satisfy <2"


def test_a_pyproject_lists_dependencies(tmp_path):
    requirements = server(tmp_path, pyproject_toml='[project]\nname = "x"\ndependencies = ["nemo-gym[dev]", "six==1"]')
    assert requirements.texts == ("six==1",)
    assert requirements.package is None
    assert find_unmet(requirements, find=environment("six==1")) is None


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        ('[build-system]\nrequires = ["hatchling"]', "its own package 'x' is not installed"),
        ('[tool.uv.sources]\nsix = { path = "six" }', "six comes from a path or URL"),
        ('[tool.uv]\noverride-dependencies = ["six==2"]', "six 1 does not satisfy ==2"),
    ],
)
def test_a_pyproject_can_ask_for_more_than_versions(tmp_path, extra, reason):
    requirements = server(tmp_path, pyproject_toml=f'[project]\nname = "x"\ndependencies = ["six==1"]\n{extra}\n')
    assert find_unmet(requirements, find=environment("six==1")) == reason


def test_a_pyproject_can_ask_for_another_python(tmp_path):
    requirements = server(tmp_path, pyproject_toml='[project]\nname = "x"\nrequires-python = ">=9"')
    assert "does not satisfy >=9" in find_unmet(requirements, find=environment())


def test_dynamic_dependencies_cannot_be_checked(tmp_path):
    requirements = server(tmp_path, pyproject_toml='[project]\nname = "x"\ndynamic = ["dependencies"]')
    assert find_unmet(requirements, find=environment()) == "it installs from a path or URL"


def test_a_folder_with_only_an_app_asks_for_nothing(tmp_path):
    assert server(tmp_path, app_py="").source is None


def test_a_pyproject_that_only_configures_tools_asks_for_nothing(tmp_path):
    assert server(tmp_path, requirements_txt="six", pyproject_toml="[tool.ruff]\n").texts == ("six",)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"requirements_txt": "", "pyproject_toml": '[project]\nname = "x"'}, "hint: keep one of the two"),
        ({}, "hint: add a requirements.txt"),
        ({"pyproject_toml": "[project"}, "is not valid TOML"),
        ({"pyproject_toml": '[project]\nname = "x"\ndependencies = "six"'}, "not a list of strings"),
    ],
)
def test_a_folder_that_cannot_be_read_says_what_to_do(tmp_path, files, message):
    with pytest.raises(ConfigError, match=message) as caught:
        server(tmp_path, **files)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


names = st.from_regex(r"[a-z]([a-z0-9]{0,6}[a-z0-9])?", fullmatch=True).map(lambda name: f"pkg-{name}")
pins = st.dictionaries(names, st.integers(0, 99).map(lambda minor: f"1.{minor}"), max_size=5)


@st.composite
def spellings(draw, wanted: dict[str, str]) -> str:
    """One of the many files that ask for `wanted`."""
    lines = []
    for name, version in draw(st.permutations(list(wanted.items()))):
        spelled = draw(st.sampled_from([name, name.upper(), name.replace("-", "_"), name.replace("-", ".")]))
        middle = draw(st.sampled_from(["==", " == ", " \\\n  =="]))
        lines += [f"{spelled}{middle}{version}{draw(st.sampled_from(['', '   ', '  # note', chr(13)]))}"]
        lines += draw(st.lists(st.sampled_from(["", "# comment", STANDARD_LINE]), max_size=2))
    return "\n".join(lines)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_files_that_ask_for_the_same_read_the_same(data):
    wanted = data.draw(pins)
    one, other = (anywhere(data.draw(spellings(wanted))) for _ in range(2))
    assert one.texts == other.texts == tuple(sorted(f"{name}=={version}" for name, version in wanted.items()))
    assert find_unmet(one, find=environment(*one.texts)) is None


@settings(max_examples=60, deadline=None)
@given(pins.filter(bool), st.data())
def test_one_package_missing_is_the_reason(wanted, data):
    missing = data.draw(st.sampled_from(sorted(wanted)))
    content = "\n".join(f"{name}=={version}" for name, version in wanted.items())
    rest = [f"{name}=={version}" for name, version in wanted.items() if name != missing]
    requirements = anywhere(content)
    assert find_unmet(requirements, find=environment(*rest)) == f"{missing}=={wanted[missing]} is not installed"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=80))
def test_any_text_is_read_or_refused_with_a_reason(text):
    try:
        assert all(anywhere(text).texts)
    except ConfigError as error:
        if "hint:" not in str(error):
            raise

# SPDX-License-Identifier: Apache-2.0
import io
import os
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from nemo_gym.sandbox.providers.command_provider import pack_folder, unpack_folder

FILE, LINK, HARD, FIFO = tarfile.REGTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE


def archive(*members: tuple[str, bytes, str]) -> io.BytesIO:
    """A tar of (name, type, link target or content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, text in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = "" if kind == FILE else text
            content = os.fsencode(text) if kind == FILE else b""
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return out


def test_a_folder_comes_back_as_it_went(tmp_path):
    source, target = tmp_path / "a", tmp_path / "b"
    (source / "sub" / "empty").mkdir(parents=True)
    (source / "sub" / "tool").write_bytes(b"\xff")
    (source / "sub" / "tool").chmod(0o755)
    os.link(source / "sub" / "tool", source / "same")
    (source / "link").symlink_to("sub/tool")
    (source / "dangling").symlink_to("nothing")
    with pack_folder(source) as packed:
        unpack_folder(packed, target)
    names = {str(path.relative_to(target)) for path in target.rglob("*")}
    assert names == {"sub", "sub/empty", "sub/tool", "same", "link", "dangling"}
    assert (target / "same").read_bytes() == (target / "link").read_bytes() == b"\xff"
    assert os.access(target / "sub" / "tool", os.X_OK)
    assert os.readlink(target / "link") == "sub/tool"


@pytest.mark.parametrize(
    "members",
    [
        [("../out", FILE, "x")],
        [("/etc/out", FILE, "x")],
        [("link", LINK, "/etc")],
        [("link", LINK, "..")],
        [("link", LINK, "/etc"), ("link/out", FILE, "x")],
        [("s/t/here", LINK, "../.."), ("s/t/out", LINK, "here/../x")],
        [("hard", HARD, "/etc/passwd")],
        [("b", LINK, "b/b"), ("b/b", HARD, "b")],
        [("pipe", FIFO, "")],
    ],
    ids=[
        "parent",
        "absolute",
        "link",
        "parent link",
        "through a link",
        "link over links",
        "hard link",
        "circle",
        "special",
    ],
)
def test_what_reaches_outside_is_refused_and_nothing_of_it_is_left(members, tmp_path):
    target = tmp_path / "inner" / "target"
    target.parent.mkdir()
    with pytest.raises((tarfile.TarError, OSError)):
        unpack_folder(archive(("fine", FILE, "x"), *members), target)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")] == ["inner"]


NAMES = st.lists(st.sampled_from(["a", "b", "..", ".", "é", "\udc80"]), min_size=1, max_size=4).map("/".join)
MEMBERS = st.lists(st.tuples(NAMES, st.sampled_from([FILE, LINK, HARD]), NAMES), max_size=5)


@given(members=MEMBERS)
@settings(max_examples=50, deadline=None)
def test_no_archive_makes_anything_outside_its_folder(members, tmp_path_factory):
    root = tmp_path_factory.mktemp("archive")
    target = root / "x" / "y"
    target.parent.mkdir()
    try:
        unpack_folder(archive(*members), target)
    except (tarfile.TarError, OSError):
        assert not target.exists()
        return
    assert {path.name for path in root.iterdir()} == {"x"}
    assert {path.name for path in target.parent.iterdir()} == {"y"}
    inside = Path(os.path.realpath(target))
    assert all(Path(os.path.realpath(path)).is_relative_to(inside) for path in target.rglob("*"))

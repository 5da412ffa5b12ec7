# SPDX-License-Identifier: Apache-2.0
"""Folders of skills."""

import hashlib

import pytest

from nemo_gym.skills import (
    SkillError,
    SkillMetadata,
    SkillsRef,
    hash_skill_dir,
    list_skills,
    load_skill_directory,
    parse_skill_md,
    stage_skills,
)


@pytest.fixture
def skills(tmp_path):
    root = tmp_path / "skills"
    (root / "pdf" / "scripts").mkdir(parents=True)
    (root / "pdf" / "SKILL.md").write_text("---\nname: read-pdf\ndescription: Read PDFs.\n---\n# How\n")
    (root / "pdf" / "scripts" / "run.py").write_text("1")
    (root / "plain").mkdir()
    (root / "plain" / "SKILL.md").write_text("No front matter.\n---\n")
    (root / "notes").mkdir()
    return root


def test_skills_are_named_by_front_matter_or_folder(skills):
    assert [(skill.name, skill.description) for skill in list_skills(skills)] == [
        ("plain", None),
        ("read-pdf", "Read PDFs."),
    ]


def test_a_ref_says_where_which_and_what(skills):
    ref = load_skill_directory(skills)
    assert (ref.path, ref.hash) == (str(skills), hash_skill_dir(skills))
    assert ref.skills == [SkillMetadata(name="plain"), SkillMetadata(name="read-pdf", description="Read PDFs.")]
    assert SkillsRef.model_validate(ref.model_dump()) == ref


def test_a_folder_may_be_a_skill_itself(skills):
    assert load_skill_directory(skills / "pdf").skills[0].name == "read-pdf"


def test_the_hash_depends_on_content_and_names_and_not_on_the_place(skills, tmp_path):
    before = load_skill_directory(skills).hash
    moved = skills.rename(tmp_path / "elsewhere")
    assert load_skill_directory(moved).hash == before
    (moved / "pdf" / "scripts" / "run.py").rename(moved / "pdf" / "scripts" / "go.py")
    renamed = load_skill_directory(moved).hash
    (moved / "pdf" / "scripts" / "go.py").write_text("2")
    assert len({before, renamed, load_skill_directory(moved).hash}) == 3


@pytest.mark.parametrize("as_given", [lambda ref: ref, lambda ref: ref.model_dump(), lambda ref: ref.path])
def test_staging_copies_the_skills_under_their_names(skills, tmp_path, as_given):
    target = tmp_path / "workspace"
    (target / "plain").mkdir(parents=True)
    (target / "plain" / "stale.txt").write_text("old")
    stage_skills(as_given(load_skill_directory(skills)), target)
    assert sorted(folder.name for folder in target.iterdir()) == ["plain", "read-pdf"]
    assert (target / "read-pdf" / "scripts" / "run.py").read_text() == "1"
    assert not (target / "plain" / "stale.txt").exists()


def test_skills_that_changed_since_are_refused(skills, tmp_path):
    ref = load_skill_directory(skills)
    (skills / "plain" / "SKILL.md").write_text("edited")
    with pytest.raises(SkillError, match="have changed since"):
        stage_skills(ref, tmp_path / "workspace")


def test_staging_never_writes_over_its_source(skills):
    with pytest.raises(SkillError, match="overlaps"):
        stage_skills(skills, skills)
    assert (skills / "plain" / "SKILL.md").exists()


def test_a_folder_without_skills_is_refused(tmp_path):
    with pytest.raises(SkillError, match=r"a folder with a file 'SKILL\.md'"):
        load_skill_directory(tmp_path)


def test_a_missing_folder_is_refused_and_so_is_a_file(skills, tmp_path):
    for act in (load_skill_directory, hash_skill_dir, lambda path: stage_skills(path, tmp_path / "target")):
        with pytest.raises(SkillError, match="nowhere' is not a directory"):
            act(tmp_path / "nowhere")
        with pytest.raises(SkillError, match=r"is not a directory.* it is a file"):
            act(skills / "pdf" / "SKILL.md")
    assert not (tmp_path / "target").exists()


def test_a_hash_is_the_start_of_the_sha_256_of_paths_and_contents(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "SKILL.md").write_bytes(b"two")
    (tmp_path / "a.txt").write_bytes(b"one")
    whole = hashlib.sha256(b"a.txt\0one\0b/SKILL.md\0two\0").hexdigest()
    assert hash_skill_dir(tmp_path) == whole[:12]


def test_front_matter_gives_name_description_and_version(skills):
    file = skills / "pdf" / "SKILL.md"
    file.write_text("---\nname: read-pdf\nversion: 1.2\n---\n")
    assert parse_skill_md(file) == SkillMetadata(name="read-pdf", version="1.2")
    assert parse_skill_md(skills / "plain") == SkillMetadata(name="plain")


@pytest.mark.parametrize("name", ["../evil", "..", "a/b"])
def test_a_name_that_would_leave_the_target_is_refused(tmp_path, name):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "SKILL.md").write_text(f"---\nname: {name}\n---\n")
    with pytest.raises(SkillError, match="cannot name a folder"):
        load_skill_directory(tmp_path)


def test_two_skills_of_one_name_are_refused(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "SKILL.md").write_text("---\nname: same\n---\n")
    with pytest.raises(SkillError, match="same"):
        load_skill_directory(tmp_path)


def test_broken_front_matter_names_the_file(tmp_path):
    (tmp_path / "SKILL.md").write_text("---\nname: [\n---\n")
    with pytest.raises(SkillError, match=r"SKILL\.md: the front matter is not valid YAML"):
        load_skill_directory(tmp_path)

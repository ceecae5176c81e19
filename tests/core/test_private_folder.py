"""A folder is used only where nobody else can write."""

import os
import stat
from pathlib import Path

import pytest

from shardfit.core.private_folder import cache_home, private_folder

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes of files are a matter of POSIX systems")


def test_a_new_folder_is_the_users_alone(tmp_path):
    made = private_folder(tmp_path / "a" / "b")
    assert stat.S_IMODE(made.stat().st_mode) == 0o700
    assert private_folder(made) == made


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_others_may_write_to_it(tmp_path, mode):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(mode)
    with pytest.raises(PermissionError, match="other users can write to .*open"):
        private_folder(tmp_path / "open")


def test_others_could_replace_it(tmp_path):
    (tmp_path / "common").mkdir()
    (tmp_path / "common").chmod(0o777)
    with pytest.raises(PermissionError, match="they can write to .*common"):
        private_folder(tmp_path / "common" / "mine")
    (tmp_path / "common").chmod(0o1777)  # as /tmp: what is there belongs to whom it belongs
    private_folder(tmp_path / "common" / "mine")


def test_a_link_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(PermissionError, match="link"):
        private_folder(tmp_path / "link")


def test_a_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        private_folder(tmp_path)


def test_the_place_follows_the_environment():
    assert cache_home({"XDG_CACHE_HOME": "/x"}) == Path("/x/shardfit")
    assert cache_home({}).is_relative_to(Path.home())

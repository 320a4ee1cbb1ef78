"""Files are written whole or not at all, and read only up to a size."""

import gzip
import os

import pytest

from nalm import files


def test_a_file_is_replaced_only_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    files.write(path, "first")

    def fail_half_way():
        with files.replacing(path) as new:
            new.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_half_way()
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["a.txt"]
    files.write(path, b"second")
    assert files.read_text(path) == "second"


def test_a_link_is_replaced_and_not_followed(tmp_path):
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_text("precious")
    link.symlink_to(precious)
    files.write(link, "new")
    assert (precious.read_text(), link.read_text(), link.is_symlink()) == ("precious", "new", False)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions")
def test_a_file_keeps_its_permissions_and_writing_leaves_the_mask_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("other threads would write with this mask"))
    for mode in (0o600, 0o640, 0o755):
        (tmp_path / "a").write_text("old")
        (tmp_path / "a").chmod(mode)
        files.write(tmp_path / "a", "new")
        assert (tmp_path / "a").stat().st_mode & 0o777 == mode
    (tmp_path / "plain").write_text("")
    files.write(tmp_path / "new", "")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_contents_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    order = []
    flush, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (order.append("fsync"), flush(handle))[1])
    monkeypatch.setattr(os, "replace", lambda a, b: (order.append("replace"), replace(a, b))[1])
    files.write(tmp_path / "a", "x")
    assert order == ["fsync", "replace", "fsync"]


def test_what_cannot_be_read_is_said_in_a_sentence(tmp_path):
    (tmp_path / "long").write_bytes(b"x" * 11)
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    for name, text in (
        (tmp_path, "is a folder"),
        (tmp_path / "none", "there is no file"),
        (tmp_path / "long", "larger than 10 bytes"),
        (tmp_path / "latin", "not text in UTF-8"),
        ("a\0b", "is not a file name"),
    ):
        with pytest.raises(files.FileError, match=text):
            files.read_text(name, 10)


def test_what_cannot_be_written_is_said_in_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "below", tmp_path):
        with pytest.raises(files.FileError, match="cannot write"):
            files.write(path, "x")
    assert sorted(os.listdir(tmp_path)) == ["file"]


def test_gzip_data_is_unpacked_up_to_a_size():
    bomb = gzip.compress(b"0" * 10_000_000)
    with pytest.raises(files.FileError, match="more than 1,000 bytes"):
        files.unpack(bomb, 1000, "it")
    for damaged in (b"", bomb[: len(bomb) // 2], b"x" + bomb):
        with pytest.raises(files.FileError, match="not a whole gzip file"):
            files.unpack(damaged, 10_000_000, "it")
    assert files.unpack(gzip.compress(b"abc"), 3, "it") == b"abc"
    with pytest.raises(files.FileError, match="more than 5 bytes"):
        files.unpack(2 * gzip.compress(b"abc"), 5, "it")


def test_every_part_of_gzip_data_is_unpacked():
    assert files.unpack(gzip.compress(b"abc") + gzip.compress(b"def"), 6, "it") == b"abcdef"


def test_a_checksum_knows_where_parts_end():
    assert files.checksum("ab", "c") != files.checksum("a", "bc")
    assert files.checksum("ab", b"c") == files.checksum("ab", "c")


def test_tables_are_written_whole_and_follow_no_link(tmp_path):
    precious, link = tmp_path / "precious", tmp_path / "table.csv"
    precious.write_text("precious")
    link.symlink_to(precious)
    files.write_table(link, [{"a": 1, "b": "x,y"}, {"a": None, "b": "é"}])
    assert precious.read_text() == "precious"
    assert link.read_bytes() == 'a,b\r\n1,"x,y"\r\n,é\r\n'.encode()
    with pytest.raises(files.FileError, match="cannot write"):
        files.write_table(precious / "below.csv", [{"a": 1}])

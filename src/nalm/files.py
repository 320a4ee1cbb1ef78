"""Files: written whole or not at all, and read only up to a size.

Everything that nalm writes in place of an older file goes through `replacing`, so that neither a kill nor a loss of power
leaves half a file. Everything that a stranger may hand us is read through `read_bytes` or `unpack`, which check sizes before
they believe them. What the bytes mean is for others to say.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import io
import os
import stat
import tempfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["FileError", "checksum", "read_bytes", "read_text", "replacing", "unpack", "write", "write_table"]

LARGEST = 1 << 30
"""Most bytes of a file that is read at once, where the caller names no other limit."""
CHUNK = 1 << 20


class FileError(ValueError):
    """A file that cannot be read or written; says which, and why."""


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file beside `path`, which takes its place at the end of the block if no error was raised.

    Its contents reach the disk before its name does. A symbolic link at `path` is replaced, not followed. Who may read and
    write an older file may do so with the new one.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=target.suffix)
        os.close(handle)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror}") from error
    new = Path(name)
    try:
        yield new
        os.chmod(new, _mode(target))
        _flush(new)
        os.replace(new, target)
        _flush(target.parent)
    except OSError as error:
        raise FileError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def write(path: str | os.PathLike[str], content: bytes | str) -> Path:
    """Write a whole file, in UTF-8 if it is text, in place of what there was; give its path."""
    with replacing(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)
    return Path(path)


def write_table(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows with the same keys as CSV, as `write` does."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, rows[0].keys())
    table.writeheader()
    table.writerows(rows)
    return write(path, text.getvalue())


def read_bytes(path: str | os.PathLike[str], most: int = LARGEST) -> bytes:
    """The bytes of a file of at most `most` bytes; `FileError` in one sentence where they are not to be had."""
    try:
        with open(path, "rb") as file:
            data = file.read(min(os.fstat(file.fileno()).st_size or most, most) + 1)
    except FileNotFoundError:
        raise FileError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise FileError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from None
    except ValueError:
        raise FileError(f"{str(path)!r} is not a file name") from None
    if len(data) > most:
        raise FileError(f"{path} is larger than {most:,} bytes, which is more than such a file can have")
    return data


def read_text(path: str | os.PathLike[str], most: int = LARGEST) -> str:
    """The text of a file in UTF-8 of at most `most` bytes."""
    try:
        return read_bytes(path, most).decode()
    except UnicodeDecodeError as error:
        raise FileError(f"{path} is not text in UTF-8 (byte {error.start:,})") from None


def unpack(data: bytes, most: int, name: str) -> bytes:
    """Unpack gzip data, of one part or several, of at most `most` bytes when unpacked; `name` stands in the error."""
    if not data:
        raise FileError(f"{name} is not a whole gzip file (it is empty)")
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            plain = packed.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"{name} is not a whole gzip file ({error})") from None
    if len(plain) > most:
        raise FileError(f"{name} unpacks to more than {most:,} bytes, which is more than such a file can have")
    return plain


def checksum(*parts: bytes | str) -> str:
    """A short hash of the parts and of where one ends and the next begins; it finds damage and is no signature."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _flush(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open folders
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mode(target: Path) -> int:
    """Permissions of the file that there is, or those that a new one gets."""
    try:
        found = target.lstat().st_mode
    except FileNotFoundError:
        return NEW
    return stat.S_IMODE(found) if stat.S_ISREG(found) else NEW


def _mask() -> int:
    """The process's file mode mask, which can only be read by setting it: not while other threads write."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


NEW = 0o666 & ~_mask()
"""Permissions of a new file."""

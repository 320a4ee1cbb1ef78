"""Handwritten digits: the standard IDX files, checked; a download of them; or the small set that scikit-learn brings along."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError

import numpy as np

from nalm.files import LARGEST, read_bytes, unpack, write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["FILES", "MIRRORS", "VARIABLE", "Digits", "download", "embedded", "load", "read_idx"]

VARIABLE = "NALM_DATA"
"""Environment variable that names the folder of the data."""
FILES = {
    "train_images": ("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
    "train_labels": ("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
    "test_images": ("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
    "test_labels": ("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
}
"""The files of MNIST with the SHA-256 of their uncompressed content."""
MIRRORS = ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
SIDE = 28
UNSIGNED_BYTE = 8
MOST_AXES = 4
TIMEOUT = 30.0
"""Seconds that a mirror may take to answer."""


@dataclass(frozen=True)
class Digits:
    """Images (n, 28, 28) and labels (n), both uint8, for training and for testing."""

    train_images: NDArray[np.uint8]
    train_labels: NDArray[np.uint8]
    test_images: NDArray[np.uint8]
    test_labels: NDArray[np.uint8]
    source: str
    """What it is, for captions."""


def read_idx(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """The array of an IDX file of bytes, gzipped or not; ValueError in one line for a file that is none or not whole."""
    return _array(_content(Path(path)), path)


def _array(content: bytes, name: object) -> NDArray[np.uint8]:
    start, shape = _header(content, name)
    if len(content) - start != math.prod(shape):
        raise ValueError(
            f"{name} should hold {math.prod(shape)} bytes after its header, for {shape}, but holds {len(content) - start}"
        )
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()


def _header(content: bytes, name: object) -> tuple[int, tuple[int, ...]]:
    """Length of the header of an IDX file, and the shape that it tells."""
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(f"{name} is not an IDX file: it must start with two zero bytes")
    kind, axes = content[2], content[3]
    if kind != UNSIGNED_BYTE:
        raise ValueError(f"{name} holds IDX type {kind:#04x}; only unsigned bytes ({UNSIGNED_BYTE:#04x}) are read")
    start = 4 + 4 * axes
    if not 1 <= axes <= MOST_AXES:
        raise ValueError(f"{name} must have from 1 to {MOST_AXES} axes, got {axes}")
    if len(content) < start:
        raise ValueError(f"{name} ends within its header: {len(content)} bytes for {axes} axes")
    return start, struct.unpack(f">{axes}I", content[4:start])


def _content(path: Path) -> bytes:
    return _unpacked(read_bytes(path), path)


def _unpacked(raw: bytes, name: object) -> bytes:
    """The content of a file that may be gzipped; its header says how much that is, before there is memory for it."""
    if not raw.startswith(b"\x1f\x8b"):
        return raw
    try:
        first = zlib.decompressobj(wbits=31).decompress(raw, 4 + 4 * MOST_AXES)
    except zlib.error:
        raise ValueError(f"{name} is not a whole gzip file: fetch it again") from None
    start, shape = _header(first, name)
    return unpack(raw, min(start + math.prod(shape), LARGEST), str(name))


def load(data_dir: str | os.PathLike[str] | None = None) -> Digits:
    """The digits in a folder, that of the environment variable NALM_DATA, or else the small set of scikit-learn."""
    folder = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    if not folder:
        return embedded()
    parts, known = {}, True
    for key, (name, checksum) in FILES.items():
        path = _found(Path(folder), name)
        content = _content(path)
        parts[key] = _array(content, path)
        known &= hashlib.sha256(content).hexdigest() == checksum
    for part in ("train", "test"):
        images, labels = parts[f"{part}_images"], parts[f"{part}_labels"]
        if images.ndim != 3 or images.shape[1:] != (SIDE, SIDE):
            raise ValueError(f"images must have shape (n, {SIDE}, {SIDE}), those in {folder} have {images.shape}")
        if labels.ndim != 1 or len(labels) != len(images):
            raise ValueError(f"{folder} has {len(images)} images and labels of shape {labels.shape} for {part}")
        if labels.size and labels.max() > 9:
            raise ValueError(f"labels must be digits from 0 to 9, {folder} has {labels.max()}")
    return Digits(**parts, source="MNIST" if known else f"digits of {Path(folder).name} (not MNIST: other checksums)")


def _found(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise ValueError(f"no file {name} or {name}.gz in {folder}; `nalm data mnist --data-dir {folder}` fetches it")


def embedded() -> Digits:
    """The 1,797 digits of 8 x 8 pixels that scikit-learn brings along, enlarged; a fifth of each digit is for testing."""
    from scipy import ndimage
    from sklearn.datasets import load_digits

    small = load_digits()
    size = SIDE / small.images.shape[1]
    images = np.stack([ndimage.zoom(image, size, order=1) for image in small.images])
    pixels = np.clip(np.rint(images * (255 / 16)), 0, 255).astype(np.uint8)
    labels = small.target.astype(np.uint8)
    order = np.arange(len(labels))
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        own = order[labels == digit]
        test[own[-(len(own) // 5) :]] = True
    return Digits(pixels[~test], labels[~test], pixels[test], labels[test], "scikit-learn digits, 8 x 8 enlarged")


def download(folder: str | os.PathLike[str], mirrors: Sequence[str] = MIRRORS) -> list[Path]:
    """Fetch what is missing of MNIST into a folder and verify all of it; no file is left half written."""
    target = Path(folder)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"cannot write to {target}: {error.strerror}") from None
    paths = []
    for name, checksum in FILES.values():
        existing = next((path for path in (target / name, target / f"{name}.gz") if path.is_file()), None)
        path = existing or target / f"{name}.gz"
        content = _content(path) if existing else _fetch(f"{name}.gz", path, mirrors, checksum)
        if hashlib.sha256(content).hexdigest() != checksum:
            raise ValueError(f"{path} is not the file of MNIST: its checksum differs; remove it and fetch it again")
        paths.append(path)
    return paths


def _fetch(name: str, path: Path, mirrors: Sequence[str], checksum: str) -> bytes:
    """Fetch a file from the first mirror that has it whole, and put it in its place; its uncompressed content."""
    problems = []
    for mirror in mirrors:
        try:
            with urllib.request.urlopen(mirror + name, timeout=TIMEOUT) as answer:
                raw = answer.read(LARGEST)
            content = _unpacked(raw, name)
        except (URLError, OSError, ValueError) as error:
            problems.append(f"{mirror}: {getattr(error, 'reason', error)}")
            continue
        if hashlib.sha256(content).hexdigest() != checksum:
            problems.append(f"{mirror}: wrong checksum")
            continue
        write(path, raw)
        return content
    raise ValueError(f"could not fetch {name}: {'; '.join(problems)}")

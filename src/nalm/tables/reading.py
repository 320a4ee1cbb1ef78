"""One reader for tables of every kind; sizes are checked before they are believed, and what is wrong is one sentence."""

from __future__ import annotations

import csv
import difflib
import io
import json
import os
import re
import warnings
import zipfile
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd

from nalm.files import FileError, read_bytes, unpack
from nalm.tables.cells import NEARLY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["read_table"]

MOST_BYTES = 1 << 28
"""Of a file, and of what it unpacks to."""
MOST_CELLS = 50_000_000
SAMPLE = 200
"""Lines from which separator and decimal mark are guessed."""
SEPARATORS = ("\t", ";", "|", ",")
SPACES = r"\s+"
WORDS = {"tab": "\t", "\\t": "\t", "space": SPACES, " ": SPACES, "comma": ",", "semicolon": ";"}
COMMA, POINT = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?"), re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
"""Numbers with one decimal mark or the other."""
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
"""Numbers with a mark that may be a decimal mark or stand between thousands."""
NO_VALUE = {"", "-", "--", "?", "na", "nan", "n/a", "n.a.", "none", "null", "#n/a"}
BINARY = re.compile("[\0-\x08\x0e-\x1a]")
"""Characters that no table in text has."""
MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
"""Bytes at the start of a file that tell its encoding."""


class Form(NamedTuple):
    """How the caller says that a table is written; None where that is to be found out."""

    sep: str | None
    decimal: str | None
    encoding: str | None
    sheet: str | None


def read_table(
    path: str | os.PathLike[str],
    *,
    sep: str | None = None,
    decimal: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
) -> pd.DataFrame:
    """A table from a file (csv, tsv, txt, also with .gz, xlsx, parquet, feather, json), or a bundled one, by name.

    Rows are numbered by their lines in the file. Remarks on how it was read are in `attrs["remarks"]`.

    Args:
        path: file, or `planets`.
        sep: what separates cells of a text: one character, `tab` or `space`.
        decimal: decimal mark of a text, a point or a comma.
        encoding: of a text, such as `latin-1`.
        sheet: name of the sheet of an xlsx file; by default the first.
    """
    file = _located(path)
    suffixes = [one.lower() for one in file.suffixes[-2:]]
    packed = suffixes[-1:] == [".gz"]
    kind = (suffixes[:-1] if packed else suffixes)[-1:] or [""]
    read, options = READERS.get(kind[0], TEXT)
    form = Form(sep, decimal, encoding, sheet)
    for name, value in form._asdict().items():
        if value is not None and name not in options:
            raise FileError(f"{name} goes with {'xlsx' if name == 'sheet' else 'text'} files, not with {file.name}")
    data = read_bytes(file, MOST_BYTES)
    if packed:
        data = unpack(data, MOST_BYTES, file.name)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = read(data, form)
    except FileError as error:
        raise FileError(f"cannot read {path}: {error}") from None
    except ImportError as error:
        package, extra = ("openpyxl", "xlsx") if read is _workbook else ("pyarrow", "parquet")
        raise FileError(f"cannot read {path}: the package {package} is missing; pip install 'nalm[{extra}]'") from error
    except Exception as error:  # packages raise whatever they like at damaged files
        raise FileError(f"cannot read {path}: {' '.join(str(error).split())[:200] or 'it is damaged'}") from None
    if table.empty:
        raise FileError(f"{path} is empty" if table.columns.empty else f"{path} has no rows")
    table.columns = [str(name) for name in table.columns]
    return table


def _located(path: str | os.PathLike[str]) -> Path:
    """The file, or a bundled one."""
    file = Path(path)
    if os.path.isfile(file) or file.suffix or len(file.parts) != 1:
        return file
    names = sorted(one.name.removesuffix(".csv") for one in (files("nalm") / "tables").iterdir() if one.name.endswith(".csv"))
    if str(path) in names:
        return Path(str(files("nalm") / "tables" / f"{path}.csv"))
    if os.path.exists(file):
        return file
    near = difflib.get_close_matches(str(path), names, 1)
    hint = f"did you mean {near[0]}?" if near else f"a table that comes with nalm is {', '.join(names)}"
    raise FileError(f"there is no file {str(path)!r}; {hint}")


def _text(data: bytes, form: Form) -> pd.DataFrame:
    """A table in text; what is not given is told from its first lines."""
    text, remarks = _decoded(data, form.encoding)
    text = _without_comments(text)
    sample = "\n".join(text.split("\n", 3 * SAMPLE)[: 3 * SAMPLE])
    if not sample.strip():
        return pd.DataFrame()
    sep = _separator(sample) if form.sep is None else WORDS.get(form.sep, form.sep)
    if sep != SPACES and (len(sep) != 1 or sep in '\r\n"'):
        raise FileError(f"sep is one character, tab or space, got {form.sep!r}")
    rows = _rows(sample, sep)
    if not rows:
        raise FileError("its lines cannot be split into cells")
    decimal = form.decimal or _decimal([row for _, row in rows[1:]], sep)
    if decimal == "," and form.decimal is None:
        remarks.append("numbers were read with decimal commas")
    if decimal not in (".", ",") or decimal == sep:
        raise FileError(f"decimal is a point or a comma, and not what separates cells, got {decimal!r}")
    (end, names), rest = rows[0], [row for _, row in rows[1:]]
    if _are_units(rest[:1], rest[1:], decimal):
        end, units = rows[1]
        remarks.append(f"line {end} was taken for units and left out: {', '.join(filter(None, units))}")
    if all(_is_number(name, decimal) for name in names):
        remarks.append(f"the names of the columns, in line {rows[0][0]}, are numbers: {', '.join(names)}")
    width = max(len(row) for _, row in rows)
    body = "".join(text.split("\n", end)[end:])
    if not body.strip():
        return pd.DataFrame(columns=names)
    options: dict[str, Any] = {"low_memory": False, "skip_blank_lines": False, "skipinitialspace": True, "index_col": False}
    where, before = ("row", 0) if any("\n" in quoted for quoted in body.split('"')[1::2]) else ("line", end)
    try:
        table = pd.read_csv(io.StringIO(body), sep=sep, decimal=decimal, header=None, names=range(width), **options)
    except pd.errors.ParserError as error:
        found = re.search(r"fields in line (\d+), saw", str(error))
        if found is None:
            raise
        raise FileError(_too_many(f"{where} {before + int(found[1])}", names)) from None
    table.index = pd.RangeIndex(before + 1, before + 1 + len(table), name=where)
    table = _named(table.dropna(how="all"), names, remarks)
    if decimal == ",":
        table = table.apply(_with_points)
    table.attrs["remarks"] = remarks
    return table


def _decoded(data: bytes, encoding: str | None) -> tuple[str, list[str]]:
    """The text with plain line ends, and a remark if its encoding was a guess."""
    mark = next((name for start, name in MARKS.items() if data.startswith(start)), None)
    if mark is None and 4 * data[:SAMPLE].count(0) > len(data[:SAMPLE]):
        mark = "utf-16-le" if data[1:2] == b"\0" else "utf-16-be"
    told = encoding or mark
    for name in [told] if told else ["utf-8", "cp1252", "latin-1"]:
        try:
            text = data.decode(name)
        except LookupError:
            raise FileError(f"unknown encoding {encoding!r}; there are utf-8, latin-1, cp1252, utf-16 and others") from None
        except UnicodeError:
            continue
        if BINARY.search(text):
            raise FileError("it is not a table in text")
        guessed = name in ("cp1252", "latin-1") and encoding is None
        remarks = [f"the file is not in UTF-8 and was read as {name}"] if guessed else []
        return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n"), remarks
    raise FileError(f"it is not text in {told}")


def _without_comments(text: str) -> str:
    """The text with empty lines in place of comments at its start; a last comment before lines of numbers holds the names."""
    lines = text.split("\n", SAMPLE)
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), 0)
    if not count:
        return text
    named = re.match(r"[-+.\d]", lines[count].strip())
    return "\n".join(["" for _ in lines[1:count]] + [lines[count - 1].lstrip("# ") if named else ""] + lines[count:])


def _rows(sample: str, sep: str) -> list[tuple[int, list[str]]]:
    """Rows of the sample that hold anything, each with the number of its last line."""
    lines = [f"{line}\n" for line in sample.split("\n")]
    if sep == SPACES:
        lines = [" ".join(line.split()) for line in lines]
    reader = csv.reader(lines, delimiter=" " if sep == SPACES else sep, skipinitialspace=True)
    try:
        rows = [(reader.line_num, [" ".join(cell.split()) for cell in row]) for row in reader]
    except csv.Error:
        return []
    return [(number, row) for number, row in rows if any(row)][:SAMPLE]


def _separator(sample: str) -> str:
    """The character that splits the lines into as many cells as there are names, and more than one."""
    scores = {}
    for sep in (*SEPARATORS, SPACES):
        widths = [len(row) for _, row in _rows(sample, sep)]
        fitting = sum(0 <= width - widths[0] <= 1 for width in widths)
        if widths and widths[0] > 1 and 2 * fitting > len(widths):
            scores[sep] = (fitting, sep != SPACES)
    return max(scores, key=lambda sep: scores[sep], default=",")


def _decimal(rows: Sequence[Sequence[str]], sep: str) -> str:
    """The decimal mark of most numbers whose mark cannot stand between thousands."""
    commas, points = ([cell for row in rows for cell in row if form.fullmatch(cell)] for form in (COMMA, POINT))
    if sep == "," or not commas:
        return "."
    clear, others = (sum(not THOUSANDS.fullmatch(cell) for cell in cells) for cells in (commas, points))
    if clear == others == 0:
        raise FileError(f"is the comma in {commas[0]} a decimal mark, or between thousands? Give --decimal, a comma or a point")
    return "," if clear > others else "."


def _is_number(cell: str, decimal: str) -> bool:
    try:
        float(cell.replace(decimal, "."))
    except ValueError:
        return False
    return True


def _are_units(first: Sequence[Sequence[str]], rest: Sequence[Sequence[str]], decimal: str) -> bool:
    """Whether the first row has words, with no digit before them, where all others have numbers or nothing."""
    above = first[0] if first else []
    words = [i for i, cell in enumerate(above) if cell.lower() not in NO_VALUE and not re.match(r"[+-]?[\d.]", cell)]
    below = {i: [row[i] for row in rest if i < len(row) and row[i].lower() not in NO_VALUE] for i in range(len(above))}
    columns = [i for i, cells in below.items() if cells and sum(_is_number(c, decimal) for c in cells) >= NEARLY * len(cells)]
    return bool(set(words) & set(columns)) and not any(_is_number(above[i], decimal) for i in columns if above[i])


def _too_many(where: str, names: Sequence[str]) -> str:
    return f"{where} has more cells than there are names, which are {len(names)}"


def _named(table: pd.DataFrame, names: Sequence[str], remarks: list[str]) -> pd.DataFrame:
    """The table with its names; cells beyond the last name are empty, or each row starts with a label."""
    over = table.columns[len(names) :]
    table = table.drop(columns=[name for name in over if table[name].isna().all()])
    while names and not names[-1] and table.iloc[:, len(names) - 1 :].isna().all(axis=None):
        names, table = names[:-1], table.iloc[:, : len(names) - 1]
    if len(table.columns) == len(names) + 1 and table.iloc[:, -1].notna().mean() >= NEARLY:
        first = table.iloc[:, 0]
        if pd.to_numeric(first, errors="coerce").notna().any() and list(first) != list(range(1, len(first) + 1)):
            raise FileError(f"the rows have one cell more than there are names, which are {len(names)}")
        remarks.append("the first cell of each row, which has no name, was taken for a label and left out")
        table = table.iloc[:, 1:]
    if len(table.columns) > len(names):
        row = int(table.iloc[:, len(names) :].notna().any(axis=1).to_numpy().argmax())
        raise FileError(_too_many(f"{table.index.name} {table.index[row]}", names))
    table.columns = [name or f"column {i + 1}" for i, name in enumerate(names)]
    return table


def _with_points(column: pd.Series) -> pd.Series:
    """A column of text in which numbers have a decimal point; what has one among commas, or before thousands, is no number."""
    if pd.api.types.is_numeric_dtype(column):
        return column
    cells = column.map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    mixed = any(isinstance(cell, str) and COMMA.fullmatch(cell) for cell in cells)

    def written(cell: Any) -> Any:
        if isinstance(cell, str) and COMMA.fullmatch(cell):
            return cell.replace(",", ".")
        wrong = isinstance(cell, str) and (POINT if mixed else THOUSANDS).fullmatch(cell)
        return f"{cell} (with a point)" if wrong else cell

    return cells.map(written)


def _workbook(data: bytes, form: Form) -> pd.DataFrame:
    """A sheet of an xlsx file."""
    import openpyxl

    with zipfile.ZipFile(io.BytesIO(data)) as packed:
        if sum(one.file_size for one in packed.infolist()) > MOST_BYTES:
            raise FileError(f"it unpacks to more than {MOST_BYTES:,} bytes")
    book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    names = [sheet.title for sheet in book.worksheets]
    if not names or (form.sheet is not None and form.sheet not in names):
        raise FileError(f"there is no sheet {form.sheet!r}; there are: {', '.join(names)}")
    sheet = book[names[0] if form.sheet is None else form.sheet]
    sheet.reset_dimensions()
    rows, cells = [], 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), 1):
        cells += len(row) + 1
        if cells > MOST_CELLS:
            raise FileError(f"it has more than {MOST_CELLS:,} cells")
        if any(cell is not None and cell != "" for cell in row):
            rows.append((number, row))
    remarks = [f"of the sheets {', '.join(names)} the first was read"] if len(names) > 1 and form.sheet is None else []
    return _from_cells(rows, remarks)


def _from_cells(rows: list[tuple[int, tuple[Any, ...]]], remarks: list[str]) -> pd.DataFrame:
    """The table in the rows of a sheet, of which the first holds the names."""
    if not rows:
        return pd.DataFrame()
    texts = [["" if cell is None else str(cell).strip() for cell in row] for _, row in rows[:SAMPLE]]
    if _are_units(texts[1:2], texts[2:], "."):
        remarks.append(f"row {rows[1][0]} was taken for units and left out: {', '.join(filter(None, texts[1]))}")
        del rows[1]
    width = max(len(row) for _, row in rows)
    body = [[*row, *[None] * (width - len(row))] for _, row in rows[1:]]
    index = pd.Index([number for number, _ in rows[1:]], name="row")
    table = _named(pd.DataFrame(body, index=index, columns=range(width)), texts[0], remarks)
    table.attrs["remarks"] = remarks
    return table


def _parquet(data: bytes, form: Form) -> pd.DataFrame:
    """A Parquet file."""
    import pyarrow.parquet

    file = pyarrow.parquet.ParquetFile(io.BytesIO(data))
    if file.metadata.num_rows * max(file.metadata.num_columns, 1) > MOST_CELLS:
        raise FileError(f"it has more than {MOST_CELLS:,} cells")
    return _counted(file.read().to_pandas())


def _feather(data: bytes, form: Form) -> pd.DataFrame:
    """A Feather file, which is an Arrow file."""
    import pyarrow.ipc

    file = pyarrow.ipc.open_file(io.BytesIO(data))
    batches, cells = [], 0
    for number in range(file.num_record_batches):
        batches.append(file.get_batch(number))
        cells += batches[-1].num_rows * max(len(file.schema), 1)
        if cells > MOST_CELLS:
            raise FileError(f"it has more than {MOST_CELLS:,} cells")
    table = pyarrow.Table.from_batches(batches, file.schema)
    table.validate(full=True)
    return _counted(table.to_pandas())


def _json(data: bytes, form: Form) -> pd.DataFrame:
    """A list of records, a record of columns, or a record a line."""
    text = data.decode("utf-8-sig")
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = [json.loads(line) for line in text.splitlines() if line.strip()]
    except RecursionError:
        raise FileError("it is nested too deeply") from None
    if isinstance(found, dict) and {"columns", "data"} <= set(found):
        return _counted(pd.DataFrame(found["data"], columns=found["columns"]))
    if isinstance(found, dict) and all(isinstance(one, (dict, list)) for one in found.values()):
        return _counted(pd.DataFrame(found))
    if isinstance(found, list) and all(isinstance(one, dict) for one in found):
        return _counted(pd.DataFrame(found))
    raise FileError("it holds neither a list of records nor a record of columns")


def _counted(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its rows counted from one."""
    table.index = pd.RangeIndex(1, len(table) + 1, name="row")
    return table


READERS: dict[str, tuple[Callable[[bytes, Form], pd.DataFrame], tuple[str, ...]]] = {
    ".xlsx": (_workbook, ("sheet",)),
    ".xlsm": (_workbook, ("sheet",)),
    ".parquet": (_parquet, ()),
    ".pq": (_parquet, ()),
    ".feather": (_feather, ()),
    ".arrow": (_feather, ()),
    ".json": (_json, ()),
    ".jsonl": (_json, ()),
}
TEXT = (_text, ("sep", "decimal", "encoding"))

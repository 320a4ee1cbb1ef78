"""Tables as people have them: files of every kind, odd cells, missing values, many columns, names with units."""

import gzip
import io
import json
import re
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

from nalm import NALMRegressor, notation, regressor, terminal
from nalm.discover import discover, read_table
from nalm.discovery import Settings, ranked, speaks
from nalm.dynamics.trajectories import columns_of
from nalm.tables import cells_of, reading


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "nalm", "discover", *map(str, arguments)], capture_output=True, text=True)


def forty_columns(rng):
    """`y = c20 - c30*c31` among 40 columns, a name with a unit, 2 % missing values, and a cell that is no number."""
    names = ["mass [kg]" if i == 3 else f"c{i}" for i in range(40)]
    table = pd.DataFrame(rng.normal(size=(500, 40)).round(6), columns=names)
    table["y"] = (table.c20 - table.c30 * table.c31).round(12)
    table = table.mask(pd.DataFrame(rng.random(table.shape) < 0.02, columns=table.columns)).astype(object)
    table.loc[17, "mass [kg]"] = "12,5 kg"
    return table


def test_law_of_a_real_table_is_found_and_what_is_left_out_is_said(rng, tmp_path):
    forty_columns(rng).to_csv(tmp_path / "real.csv", index=False)
    done = command(tmp_path / "real.csv", "--target", "y")
    assert (done.returncode, done.stderr) == (0, "")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[0] == "- column mass [kg] has a cell that is no number: '12,5 kg' in line 19"
    said = re.sub(r"\d+ of 500|\(\d+\)", "n", lines[1])
    assert said == "- n rows were left out, which lack a number in c20 n, c30 n, c31 n, y n"
    assert lines[2] == "y = c20 - c30*c31"
    assert lines[-1] == "- c0, c1, c2, mass [kg] and 30 more columns were looked at and not needed"
    assert len(lines) < 15


@pytest.mark.parametrize(
    "law",
    [
        lambda x: x[:, 20] - x[:, 30] * x[:, 31],
        lambda x: x[:, 1] * x[:, 5] * x[:, 17] * x[:, 33] / x[:, 39],
        lambda x: np.hypot(x[:, 5], x[:, 17]),
        lambda x: np.abs(x[:, 5]) / (x[:, 17] ** 2 + x[:, 33] ** 2),
    ],
)
def test_columns_of_a_law_come_first(law, rng):
    x = rng.normal(size=(500, 40))
    needed = {i for i in range(40) if not np.array_equal(law(x), law(np.where(np.arange(40) == i, x + 1, x)))}
    assert needed <= set(ranked(x, law(x))[:6])


def test_what_is_left_over_speaks_only_where_there_is_something_to_say(rng):
    x = rng.uniform(1, 3, (500, 40))
    noise = rng.normal(size=500)
    assert not speaks(x, noise)
    assert not speaks(x, noise * x[:, 1] * x[:, 2]), "noise that grows is noise"
    assert speaks(x, x[:, 3] / x[:, 7] + 0.2 * noise)


def test_columns_that_were_not_searched_are_not_said_to_play_no_part(rng):
    x = rng.normal(size=(300, 20))
    table = pd.DataFrame(x, columns=[f"c{i}" for i in range(20)]).assign(y=x[:, 3] * x[:, 17])
    found = discover(table, "y")
    assert found.found
    assert found.model.searched_.sum() == 6
    assert sum("play" in remark for remark in found.remarks) == 4, "those of the six that the law lacks"
    assert sum("looked at and not needed" in remark for remark in found.remarks) == 1


def test_a_law_that_lacks_a_column_that_was_not_searched_is_none(rng):
    x = rng.uniform(1, 2, (400, 3))
    y = x[:, 0] * x[:, 1] * (1 + 0.01 * rng.normal(size=400)) + 0.05 * x[:, 2]
    rows = regressor._Rows(x, y, np.ones(400))
    found = regressor._find_among(np.arange(2), rows, Settings(restarts=1), None, rng)
    assert "noise level" in found.doubt


def test_more_columns_are_searched_where_few_give_no_law(rng):
    x = rng.normal(size=(300, 20))
    model = NALMRegressor(restarts=1, random_state=0).fit(x, rng.normal(size=300))
    assert model.searched_.sum() == 12


def test_rows_lack_only_what_the_law_needs(rng):
    x = rng.uniform(1, 2, (200, 3))
    y = x[:, 0] / x[:, 1]
    x[:150, 2] = np.nan
    x[:5, 0] = np.nan
    table = pd.DataFrame(x, columns=["a", "b", "c"]).assign(y=y)
    found = discover(table, "y")
    assert str(found.formula) == "a/b"
    assert len(found.table) == 195
    assert found.left_out[0] == "not searched, for lack of numbers in many rows: c (150)"
    assert found.left_out[1:] == ["5 of 200 rows were left out, which lack a number in a (5)"]
    with pytest.raises(ValueError, match="NaN"):
        NALMRegressor().fit(x, y)
    model = NALMRegressor(missing="drop", random_state=0).fit(x, y)
    assert np.isnan(model.predict(x)).sum() == 5
    with pytest.raises(ValueError, match="missing must be raise or drop, got 'skip'"):
        NALMRegressor(missing="skip").fit(x, y)


def test_nothing_but_missing_values_is_no_law(rng):
    table = pd.DataFrame({"a": np.nan, "y": rng.normal(size=50)})
    found = discover(table, "y")
    assert not found.found
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["range"]["a"] == [None, None]
    with pytest.raises(ValueError, match="0 of 50 rows have a number in 'a'"):
        discover(table, "a")


def test_cells_that_are_no_numbers_are_named(tmp_path):
    rows = [f"{i},{i + 0.5}" for i in range(20)]
    rows[3], rows[7] = "3,about 4", '7,"12,5 kg"'
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(rows))
    cells = cells_of(read_table(tmp_path / "t.csv")["b"])
    assert cells.remark == "column b has 2 cells that are no number: 'about 4' in line 5, '12,5 kg' in line 9"
    assert np.isnan(cells.numbers).sum() == 2
    assert cells_of(pd.Series(["red", "blue"], name="b")) == (None, "")
    mixed = cells_of(pd.Series(["red", "blue", "3"], name="b"))
    assert mixed == (None, "column b has 2 cells that are no number: 'red' in row 0, 'blue' in row 1; it was left out")


def test_dates_become_days(tmp_path):
    for text in ("2020-01-01,1\n2020-01-03,2\n", "1.1.2020,1\n3.1.2020,2\n", "2020-01-01T00:00:00Z,1\n2020-01-03 00:00,2\n"):
        (tmp_path / "t.csv").write_text("when,y\n" + text)
        cells = cells_of(read_table(tmp_path / "t.csv")["when"])
        assert list(cells.numbers) == [0, 2]
        assert cells.remark == "column when holds dates: they became days since 2020-01-01"


@pytest.mark.parametrize("kind", [None, object])
def test_lengths_of_time_become_seconds_and_what_is_no_number_is_none(kind):
    times = cells_of(pd.Series([pd.Timedelta("2s"), pd.Timedelta("1min"), None], name="d").astype(kind or "timedelta64[ns]"))
    np.testing.assert_array_equal(times.numbers, [2, 60, np.nan])
    assert times.remark == "column d holds lengths of time: they became seconds"
    for values in (pd.period_range("2020", periods=3, freq="M"), [1j, 2.0]):
        column = pd.Series(values)
        assert cells_of(column.astype(kind or column.dtype)).numbers is None


NUMBERS = pd.DataFrame({"a": [1.5, 2.5, 3.5], "mass [kg]": [10.0, -20.5, 1e-3], "Größe": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("sep", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16", "utf-16-le"])
def test_text_is_read_however_it_is_written(sep, decimal, encoding, tmp_path):
    if sep == decimal:
        return
    text = NUMBERS.to_csv(index=False, sep=sep, decimal=decimal)
    (tmp_path / "t.csv").write_bytes(text.encode(encoding))
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode(encoding)))
    for name in ("t.csv", "t.csv.gz"):
        found = read_table(tmp_path / name)
        pd.testing.assert_frame_equal(found.reset_index(drop=True), NUMBERS)
        guesses = ["the file is not in UTF-8 and was read as cp1252"] if encoding == "latin-1" else []
        assert found.attrs["remarks"] == guesses + (["numbers were read with decimal commas"] if decimal == "," else [])


def test_files_of_other_programs_are_read(tmp_path):
    with_units = NUMBERS.astype(object)
    with_units.loc[-1] = ["m", "kg", "cm"]
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        with_units.sort_index().to_excel(book, sheet_name="first", index=False)
        NUMBERS.to_excel(book, sheet_name="second", index=False)
    NUMBERS.to_feather(tmp_path / "t.feather")
    NUMBERS.to_parquet(tmp_path / "t.parquet")
    NUMBERS.to_json(tmp_path / "t.json", orient="records")
    NUMBERS.to_json(tmp_path / "columns.json")
    NUMBERS.to_json(tmp_path / "lines.jsonl", orient="records", lines=True)
    for name in ("t.feather", "t.parquet", "t.json", "columns.json", "lines.jsonl"):
        pd.testing.assert_frame_equal(read_table(tmp_path / name).reset_index(drop=True), NUMBERS, check_dtype=False)
    for sheet in (None, "first", "second"):
        found = read_table(tmp_path / "t.xlsx", sheet=sheet)
        pd.testing.assert_frame_equal(found.reset_index(drop=True), NUMBERS, check_dtype=False)
    remarks = read_table(tmp_path / "t.xlsx").attrs["remarks"]
    assert remarks == ["of the sheets first, second the first was read", "row 2 was taken for units and left out: m, kg, cm"]


def test_a_row_of_units_is_left_out(tmp_path):
    (tmp_path / "t.csv").write_text("name,a,b\n-,m,kg m/s²\nx,1,2\ny,3,4\n")
    table = read_table(tmp_path / "t.csv")
    assert (list(table.a), list(table.index)) == ([1, 3], [3, 4])
    assert table.attrs["remarks"] == ["line 2 was taken for units and left out: -, m, kg m/s²"]
    (tmp_path / "t.csv").write_text('a,b\nNA,NA\n1,2\n3,4\n"5 kg",6\n')
    assert list(read_table(tmp_path / "t.csv").index) == [3, 4, 5], "missing values are no units; a line without any is empty"


@pytest.mark.parametrize(
    "text",
    [
        '"a" "b"\n"1" 1 2\n"2" 3 4\n',  # with labels of the rows, as R writes them
        "a,b,\n1,2,\n\n3,4,\n,,\n",
        "# made by a machine\na,b\n1,2\n3,4\n",
        "# made by a machine\n# a  b\n1 2\n3 4\n",
        "a,b\r1,2\r3,4\r",
    ],
)
def test_habits_of_other_programs_do_no_harm(text, tmp_path):
    (tmp_path / "t.csv").write_text(text, newline="")
    assert read_table(tmp_path / "t.csv").to_dict("list") == {"a": [1, 3], "b": [2, 4]}


def test_labels_of_rows_are_left_out_with_a_remark(tmp_path):
    for first, second in (("1", "2"), ("mon", "tue")):
        (tmp_path / "t.csv").write_text(f"a,b\n{first},1,2\n{second},3,4\n")
        table = read_table(tmp_path / "t.csv")
        assert table.to_dict("list") == {"a": [1, 3], "b": [2, 4]}
        assert table.attrs["remarks"] == ["the first cell of each row, which has no name, was taken for a label and left out"]


def test_commas_between_thousands_are_no_decimal_marks(tmp_path):
    (tmp_path / "t.csv").write_text("place;pop\na;1,234\nb;2,345\nc;999\n")
    with pytest.raises(ValueError, match="is the comma in 1,234 a decimal mark, or between thousands"):
        read_table(tmp_path / "t.csv")
    assert list(read_table(tmp_path / "t.csv", decimal=",")["pop"]) == [1.234, 2.345, 999]
    (tmp_path / "t.csv").write_text("x;n\n999,5;1.250\n" + "2,5;3.500\n" * 8 + "1.500,5;1.250\n1.250;1.250\n")
    table = read_table(tmp_path / "t.csv")
    x, n = (cells_of(table[name]) for name in "xn")
    assert np.flatnonzero(np.isnan(x.numbers)).tolist() == [9, 10]
    assert "'1.500,5' in line 11" in x.remark
    assert n.numbers is None


def test_a_mark_of_the_encoding_is_no_part_of_a_name(tmp_path):
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\n1,2\n")
    assert list(read_table(tmp_path / "t.csv", encoding="utf-8")) == ["a", "b"]


def test_rows_are_counted_where_cells_have_line_breaks(tmp_path):
    (tmp_path / "t.csv").write_text('a,b\n"x\ny",2\n' + "z,3\n" * 8 + "z,four\n")
    assert cells_of(read_table(tmp_path / "t.csv")["b"]).remark == "column b has a cell that is no number: 'four' in row 10"


def test_how_a_text_is_written_may_be_said(tmp_path):
    (tmp_path / "t.csv").write_bytes("a:µ\n1,5:2,5\n3,5:4,5\n".encode("cp1252"))
    found = read_table(tmp_path / "t.csv", sep=":", decimal=",", encoding="cp1252")
    assert found.to_dict("list") == {"a": [1.5, 3.5], "µ": [2.5, 4.5]}
    (tmp_path / "t.txt").write_text("a  b\n1  2\n3  4\n")
    assert list(read_table(tmp_path / "t.txt").columns) == ["a", "b"]
    for options, message in (
        ({"sep": "::"}, "sep is one character"),
        ({"decimal": "x"}, "decimal is a point or a comma"),
        ({"encoding": "klingon"}, "unknown encoding 'klingon'"),
        ({"encoding": "ascii"}, "not text in ascii"),
        ({"sheet": "one"}, "sheet goes with xlsx files, not with t.csv"),
    ):
        with pytest.raises(ValueError, match=message):
            read_table(tmp_path / "t.csv", **options)


def test_files_that_are_no_tables_are_refused_in_a_sentence(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(reading, "MOST_BYTES", 500_000)
    monkeypatch.setattr(reading, "MOST_CELLS", 1_000)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/workbook.xml", "0" * 1_000_000)
    (tmp_path / "bomb.xlsx").write_bytes(bomb.getvalue())
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"0" * 1_000_000))
    (tmp_path / "torn.csv.gz").write_bytes(gzip.compress(b"a,b\n1,2\n")[:-4])
    pd.DataFrame(np.zeros((2_000, 1)), columns=["a"]).to_parquet(tmp_path / "long.parquet")
    pd.DataFrame(np.zeros((2_000, 1)), columns=["a"]).to_excel(tmp_path / "long.xlsx")
    pd.DataFrame({"a": [1]}).to_excel(tmp_path / "t.xlsx")
    (tmp_path / "picture.csv").write_bytes(bytes(range(256)))
    (tmp_path / "more.csv").write_text("a,b\n1,2\n1,2,3,4\n")
    (tmp_path / "names.csv").write_text("a,b\n")
    (tmp_path / "late.csv").write_text("a,b\n" + "1,2\n" * 300 + "1,2,3\n")
    (tmp_path / "broken.csv").write_text('a,b\n1,"2\n"\n' + "1,2\n" * 300 + "1,2,3\n")
    (tmp_path / "nameless.csv").write_text("a,b\n5,1,2\n7,2,4\n")
    pd.DataFrame(np.zeros((2_000, 1)), columns=["a"]).to_feather(tmp_path / "long.feather")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "number.json").write_text("1")
    (tmp_path / "folder").mkdir()
    for name, message in (
        ("planet", "there is no file 'planet'; did you mean planets?"),
        ("xyz", "there is no file 'xyz'; a table that comes with nalm is planets"),
        ("none.csv", "there is no file none.csv"),
        ("folder", "folder is a folder, not a file"),
        ("bomb.xlsx", "unpacks to more than 500,000 bytes"),
        ("bomb.csv.gz", "unpacks to more than 500,000 bytes"),
        ("torn.csv.gz", "not a whole gzip file"),
        ("long.parquet", "more than 1,000 cells"),
        ("long.xlsx", "more than 1,000 cells"),
        ("picture.csv", "not a table in text"),
        ("more.csv", "line 3 has more cells than there are names, which are 2"),
        ("names.csv", "has no rows"),
        ("late.csv", "line 302 has more cells than there are names, which are 2"),
        ("broken.csv", "row 302 has more cells than there are names, which are 2"),
        ("nameless.csv", "the rows have one cell more than there are names, which are 2"),
        ("long.feather", "more than 1,000 cells"),
        ("deep.json", "cannot read deep.json"),
        ("number.json", "neither a list of records nor"),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            read_table(name)
    with pytest.raises(ValueError, match="there is no sheet 'b'; there are: Sheet1"):
        read_table("t.xlsx", sheet="b")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(ValueError, match=re.escape("the package openpyxl is missing; pip install 'nalm[xlsx]'")):
        read_table("t.xlsx")


def damaged(data, place, byte, length):
    """Bytes of which one is changed and the end is cut off."""
    place %= max(len(data), 1)
    return (data[:place] + bytes([byte]) + data[place + 1 :])[: len(data) - length % (len(data) + 1)]


KINDS = {
    "t.csv": lambda table, file: table.to_csv(file, index=False),
    "t.xlsx": lambda table, file: table.to_excel(file, index=False),
    "t.parquet": lambda table, file: table.to_parquet(file),
    "t.feather": lambda table, file: table.to_feather(file),
}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("intact")
    for name, write in KINDS.items():
        write(NUMBERS, folder / name)
    NUMBERS.to_json(folder / "t.json", orient="records")
    (folder / "t.csv.gz").write_bytes(gzip.compress((folder / "t.csv").read_bytes()))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def read_or_refuse(path, data):
    path.write_bytes(data)
    said = ""
    try:
        table = read_table(path)
        for number in range(len(table.columns)):
            cells_of(table.iloc[:, number])
    except ValueError as error:
        said = str(error)
    assert len(said) < 600
    assert "\n" not in said


@given(
    name=st.sampled_from([*KINDS, "t.json", "t.csv.gz"]),
    place=st.integers(0, 10_000),
    byte=st.integers(0, 255),
    length=st.one_of(st.just(0), st.integers(0, 10_000)),
)
def test_damaged_files_are_read_or_refused_in_a_sentence(intact, tmp_path_factory, name, place, byte, length):
    read_or_refuse(tmp_path_factory.getbasetemp() / name, damaged(intact[name], place, byte, length))


@given(
    text=st.one_of(
        st.text(max_size=60),
        st.text("ab,;\t|\n\r\"' 1.5e-", max_size=80),
        st.lists(st.lists(st.sampled_from(["a", "1", "2,5", "3.5", "", "NA", '"', "12 kg", "2020-01-01"]), max_size=4)).map(
            lambda rows: "\n".join(";".join(row) for row in rows)
        ),
    ),
    suffix=st.sampled_from([".csv", ".tsv", ".txt", ".json", ".xlsx", ".parquet", ".feather", ".csv.gz"]),
)
def test_any_text_is_read_or_refused_in_a_sentence(text, suffix, tmp_path_factory):
    read_or_refuse(tmp_path_factory.getbasetemp() / f"any{suffix}", text.encode("utf-8", "surrogatepass"))


def test_names_are_printed_as_they_are(capsys):
    terminal.print_table(["mass [kg]", "[bold]"], [["Δt [s]", ":smile: [/]"]])
    shown = capsys.readouterr().out
    for name in ("mass [kg]", "[bold]", "Δt [s]", ":smile: [/]"):
        assert name in shown


def test_names_in_latex_are_text():
    mass, odd, usual = (sp.Symbol(name, real=True) for name in ("mass [kg]", "50%_of $x$", "alpha_1"))
    assert notation.latex(mass**2 / odd) == r"\frac{\text{mass [kg]}^{2}}{\text{50\%\_of \$x\$}}"
    assert notation.latex(usual) == r"\alpha_{1}"
    assert notation.condition(sp.Eq(sp.Symbol("Δt (s)"), 0)) == "Δt (s) = 0"
    assert notation.condition(sp.Symbol("a", real=True) + 0.123456789 < 0) == "a + 0.123457 < 0"


@given(st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), min_size=1, max_size=8))
def test_any_name_can_be_drawn(name):
    symbol = sp.Symbol(name, real=True)
    figure = Figure()
    figure.suptitle(f"{notation.plain(name)} = ${notation.latex(symbol**2 + 1 / symbol, picture=True)}$")
    figure.draw_without_rendering()


def test_report_of_odd_names(rng):
    x = rng.uniform(1, 2, (60, 2))
    found = discover(pd.DataFrame(x, columns=["Δt (s)", "mass [kg]"]).assign(**{"y $": x[:, 1] / x[:, 0]}), "y $")
    document = found.to_json()
    assert document["formula"] == "mass [kg]/Δt (s)"
    assert document["latex"] == r"\frac{\text{mass [kg]}}{\text{Δt (s)}}"
    assert document["undefined"] == ["Δt (s) = 0"]
    found.figure().draw_without_rendering()
    assert json.dumps(document)


def test_coefficients_have_the_digits_that_are_known(rng):
    x = rng.uniform(1, 2, (400, 1))
    table = pd.DataFrame(x, columns=["a"]).assign(y=3.14159265 * x[:, 0])
    assert str(discover(table, "y").formula) == "3.14159*a"
    noisy = discover(table.assign(y=table.y + 0.1 * rng.normal(size=400)), "y")
    assert re.fullmatch(r"3\.1\d{1,2}\*a", str(noisy.formula))


def test_of_many_rows_some_are_drawn(rng):
    x = rng.uniform(1, 2, (6_000, 1))
    figure = discover(pd.DataFrame(x, columns=["a"]).assign(y=2 * x[:, 0]), "y").figure()
    drawn = sum(len(line.get_xdata()) for line in figure.axes[0].lines if line.get_marker() == "o")
    assert drawn == 5_000
    assert figure.axes[1].get_title() == "5,000 of 6,000 rows, chosen at random"


@pytest.mark.parametrize(("inputs", "target"), [(1e-200, 1e-200), (1e307, 1e-300), (1.0, 1e307)])
def test_huge_and_tiny_values_raise_no_warnings(inputs, target, rng):
    x = rng.uniform(1, 1.5, (100, 2))
    table = pd.DataFrame(x * inputs, columns=["a", "b"]).assign(y=x[:, 0] / x[:, 1] * target)
    found = discover(table, "y", restarts=1)
    assert found.found
    assert str(found.formula).endswith("*a/b")
    np.testing.assert_allclose(found.model.predict(table[["a", "b"]]), table.y, rtol=1e-9)
    assert found.figure().axes


def test_tables_of_times_have_gaps_and_mistakes_too():
    times = np.arange(12.0)
    table = pd.DataFrame({"t": times, "x": np.exp(-times)}).astype(object)
    table.loc[3, "x"], table.loc[5, "t"] = "12,5 kg", None
    clock, states, remarks = columns_of(table, "t")
    assert (len(clock), list(states.columns)) == (10, ["x"])
    assert remarks == [
        "column x has a cell that is no number: '12,5 kg' in row 3",
        "2 of 12 rows were left out, which lack a number in t (1), x (1)",
    ]


def test_columns_with_many_gaps_do_not_stop_a_search_in_time():
    times = np.arange(12.0)
    table = pd.DataFrame({"t": times, "x": np.exp(-times), "note": np.nan, "z": np.where(times < 9, np.nan, 1)})
    clock, states, remarks = columns_of(table, "t")
    assert (len(clock), list(states.columns)) == (12, ["x"])
    assert remarks == ["left out, for lack of numbers in many rows: note, z"]
    with pytest.raises(ValueError, match=r"at least 4 rows, got 3: 9 of 12 rows were left out, which lack a number in z \(9\)"):
        columns_of(table, "t", ["x", "z"])


def test_discover_takes_files_and_one_feature(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("speed [m/s],way\n" + "".join(f"{n},{2 * n}\n" for n in range(1, 21)))
    found = discover(file, "way", "speed [m/s]")
    assert str(found).startswith("way = 2*speed [m/s]")

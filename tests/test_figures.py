"""The three-panel figure: what is drawn is what the rows say, and a saved file is whole and reproducible."""

import subprocess
import sys
from itertools import pairwise, product

import matplotlib
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex
from matplotlib.image import imread

from nalm import figures
from nalm.figures import save, three_panels

RANGES = ["U[-20,-10)", "U[-2,-1)", "U[-1.2,-1.1)", "U[-0.2,-0.1)", "U[-2,2)", "U[0.1,0.2)", "U[1,2)", "U[1.1,1.2)", "U[10,20)"]


def make_row(module="nau", operation="add", interpolation="U[1,2)", rate=0.8, step=4000.0, sparsity=1e-4, **more):
    solved = rate > 0
    return {
        "module": module,
        "operation": operation,
        "inputs": 2,
        "interpolation": interpolation,
        "extrapolation": "U[2,6)",
        "runs": 25,
        "success_rate": rate,
        "success_low": rate * 0.9,
        "success_high": rate * 0.9 + 0.1,
        "solved_at_median": step * 0.95 if solved else None,
        "solved_at_mean": step if solved else None,
        "solved_at_low": step * 0.8 if solved else None,
        "solved_at_high": step * 1.3 if solved else None,
        "sparsity_mean": sparsity if solved else None,
        "sparsity_low": sparsity * 0.5 if solved else None,
        "sparsity_high": sparsity * 3 if solved else None,
        "threshold": 1e-5,
        **more,
    }


def make_rows(modules, ranges=RANGES, operations=("mul",)):
    """Rows as a benchmark gives them: every value its own, and some ranges that nothing solved."""
    generator = np.random.default_rng(0)
    return [
        make_row(module, operation, each, rate, 10 ** generator.uniform(3, 4.7), 10 ** generator.uniform(-8, -0.5))
        for operation, module, each in product(operations, modules, ranges)
        for rate in [max(0.0, generator.uniform(-0.3, 1))]
    ]


def drawn(axes):
    """Points and intervals in a panel, by module's index: (value, position) and (low, high, position)."""
    points = [list(zip(*line.get_data(), strict=True)) for line in axes.lines]
    bars = [collection for collection in axes.collections if isinstance(collection, LineCollection)]
    intervals = [[(segment[0][0], segment[1][0], segment[0][1]) for segment in bar.get_segments()] for bar in bars]
    return points, intervals


def legend_labels(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize(
    ("panel", "title", "point", "low", "high"),
    [
        (0, "Success rate", "success_rate", "success_low", "success_high"),
        (1, "Solved at iteration step", "solved_at_mean", "solved_at_low", "solved_at_high"),
        (2, "Sparsity error", "sparsity_mean", "sparsity_low", "sparsity_high"),
    ],
)
def test_points_and_intervals_are_those_of_the_rows(panel, title, point, low, high):
    modules = ["nau", "nmu", "nalu", "npu", "nru", "inalu", "gnalu"]
    rows = make_rows(modules)
    figure = three_panels(rows)
    assert len(figure.axes) == 3
    axes = figure.axes[panel]
    assert axes.get_title() == title
    points, intervals = drawn(axes)
    assert len(points) == len(intervals) == len(modules)
    for i, module in enumerate(modules):
        shown = [row for row in rows if row["module"] == module and row[point] is not None]
        assert [value for value, _ in points[i]] == [row[point] for row in shown]
        assert [ends[:2] for ends in intervals[i]] == [(row[low], row[high]) for row in shown]
        places = [place for _, place in points[i]]
        assert [place for *_, place in intervals[i]] == places
        assert [round(place) for place in places] == [RANGES.index(row["interpolation"]) for row in shown]
    left, right = axes.get_xlim()
    assert all(left <= a <= b <= right for each in intervals for a, b, _ in each)


def test_panels_two_and_three_are_empty_where_nothing_was_solved():
    rows = make_rows(["nau", "nmu"])
    unsolved = sum(row["success_rate"] == 0 for row in rows)
    assert 0 < unsolved < len(rows)
    counts = [sum(map(len, drawn(axes)[0])) for axes in three_panels(rows).axes]
    assert counts == [len(rows), len(rows) - unsolved, len(rows) - unsolved]


def test_no_run_solved_at_all(tmp_path):
    figure = three_panels([make_row(rate=0.0)])
    assert [sum(map(len, drawn(axes)[0])) for axes in figure.axes] == [1, 0, 0]
    save(figure, tmp_path / "figure")


def test_a_point_without_interval_is_drawn_alone():
    figure = three_panels([make_row(solved_at_low=None, solved_at_high=None)])
    points, intervals = drawn(figure.axes[1])
    assert points == [[(4000.0, 0.0)]]
    assert intervals == [[]]


def test_an_interval_beside_its_point_is_drawn_as_given():
    figure = three_panels([make_row(rate=1.0, success_low=0.8, success_high=0.95)])
    assert drawn(figure.axes[0]) == ([[(1.0, 0.0)]], [[(0.8, 0.95, 0.0)]])


def test_a_sparsity_error_of_zero_has_its_place():
    axes = three_panels([make_row(sparsity=0.0), make_row("nmu", sparsity=1e-8), make_row("nalu", sparsity=0.5)]).axes[2]
    pixels = [axes.transData.transform((line.get_xdata()[0], 0))[0] for line in axes.lines]
    start, end = axes.bbox.intervalx
    assert start < pixels[0] < pixels[1] < pixels[2] < end


@pytest.mark.parametrize("count", [1, 7, 12, 20])
def test_modules_are_told_apart_and_do_not_touch(count):
    modules = [f"module-{i}" for i in range(count)]
    labels = {"module-0": "NAC•,σ"}
    figure = three_panels([make_row(module, interpolation=each) for each in RANGES for module in modules], labels=labels)
    assert legend_labels(figure) == ["NAC•,σ", *modules[1:]]
    for axes in figure.axes:
        styles = [(line.get_color(), line.get_marker()) for line in axes.lines]
        assert len(set(styles)) == count
        assert styles == [(line.get_color(), line.get_marker()) for line in figure.legends[0].get_lines()]
        assert [to_hex(bar.get_color()[0]) for bar in axes.collections] == [colour.lower() for colour, _ in styles]
    lines = figure.axes[0].lines
    places = np.sort(np.concatenate([line.get_ydata() for line in lines]))
    pixels = np.abs(np.diff(figure.axes[0].transData.transform([(0, y) for y in places])[:, 1]))
    assert pixels.min() > lines[0].get_markersize() * figure.dpi / 72


def test_ranges_are_named_in_order_and_do_not_overlap():
    ranges = ["U[-6,-2)|U[2,6)", *RANGES, "TN(-1,3)[-5,10)"]
    figure = three_panels(make_rows(["nau"], ranges))
    axes = figure.axes[0]
    names = axes.get_yticklabels()
    assert [name.get_text() for name in names] == ranges
    assert {axes.get_ylim() for axes in figure.axes} == {(len(ranges) - 0.5, -0.5)}
    boxes = [name.get_window_extent() for name in names]
    assert all(upper.y0 > lower.y1 for upper, lower in pairwise(boxes))
    assert min(box.x0 for box in boxes) > 0


def test_each_operation_has_its_row_of_panels():
    rows = [*make_rows(["nau"], RANGES[:2], ["add"]), *make_rows(["nau", "nmu"], RANGES[1:5], ["mul"])]
    figure = three_panels(rows)
    assert len(figure.axes) == 6
    assert legend_labels(figure) == ["nau", "nmu"]
    add, mul = figure.axes[0], figure.axes[3]
    assert [name.get_text() for name in add.get_yticklabels()] == RANGES[:2]
    assert [name.get_text() for name in mul.get_yticklabels()] == RANGES[1:5]
    assert [text.get_text() for text in (*add.texts, *mul.texts)] == ["add by interpolation", "mul by interpolation"]
    rates = [row["success_rate"] for row in rows]
    assert [value for value, _ in drawn(add)[0][0]] == rates[:2]
    assert [value for module in drawn(mul)[0] for value, _ in module] == rates[2:]
    assert mul.bbox.height == pytest.approx(2 * add.bbox.height, rel=0.01)


def test_another_field_may_vary():
    rows = [make_row(batch_size=size, rate=rate) for size, rate in [(128, 0.4), (32, 0.6), (512, 0.2)]]
    axes = three_panels(rows, vary="batch_size").axes[0]
    assert [name.get_text() for name in axes.get_yticklabels()] == ["128", "32", "512"]
    assert drawn(axes)[0] == [[(0.4, 0.0), (0.6, 1.0), (0.2, 2.0)]]
    assert axes.texts[0].get_text() == "add by batch size"


def test_caption_stands_below_and_within_the_figure():
    caption = "Single-module multiplication, 25 seeds, 50,000 iterations, fused engine, 3 min 12 s. " * 4
    figure = three_panels(make_rows(["nau"]), caption=caption)
    assert figure.get_supxlabel().split() == caption.split()
    box = next(text for text in figure.texts if text.get_text() == figure.get_supxlabel()).get_window_extent()
    assert box.x0 > 0
    assert box.x1 < figure.bbox.x1
    assert 0 <= box.y0 < box.y1 < min(axes.get_tightbbox().y0 for axes in figure.axes)
    assert three_panels([make_row()]).get_supxlabel() == ""


def test_no_rows_are_refused():
    with pytest.raises(ValueError, match=r"^a figure needs at least one row, got none$"):
        three_panels([])


def test_a_field_that_a_row_lacks_is_refused():
    with pytest.raises(ValueError, match=r"^cannot vary 'noise': a row has only module, operation, inputs, .*threshold$"):
        three_panels([make_row(noise=1), make_row()], vary="noise")


@pytest.mark.parametrize(
    ("name", "written"),
    [("figure.png", ["figure.png"]), ("figure.svg", ["figure.svg"]), ("figure", ["figure.png", "figure.svg"])],
)
def test_save_writes_what_the_suffix_asks_for(tmp_path, name, written):
    figure = three_panels([make_row()])
    folder = tmp_path / "new" / "folder"
    assert save(figure, str(folder / name)) == [folder / each for each in written]
    assert sorted(path.name for path in folder.iterdir()) == written
    for path in folder.iterdir():
        if path.suffix == ".png":
            height, width, _ = imread(path).shape
            assert [width, height] == pytest.approx(figure.get_size_inches() * 150, abs=1)
        else:
            assert path.read_text().rstrip().endswith("</svg>")


def test_save_refuses_another_suffix(tmp_path):
    with pytest.raises(
        ValueError, match=r"^a figure is saved as \.png, \.svg, \.pdf, \.eps or, without suffix, as .* got 'figure\.jpg'$"
    ):
        save(three_panels([make_row()]), tmp_path / "figure.jpg")
    assert list(tmp_path.iterdir()) == []


def test_svg_is_the_same_to_the_byte_whatever_was_saved_before(tmp_path):
    rows = make_rows(["nau", "nmu"])
    salt = matplotlib.rcParams["svg.hashsalt"]
    figure = three_panels(rows, caption="25 seeds")
    _, first = save(figure, tmp_path / "first")
    (second,) = save(figure, tmp_path / "second.svg")
    (third,) = save(three_panels(rows, caption="25 seeds"), tmp_path / "third.svg")
    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
    assert "dc:date" not in first.read_text()
    assert matplotlib.rcParams["svg.hashsalt"] == salt


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    figure = three_panels([make_row()])
    (path,) = save(figure, tmp_path / "figure.svg")
    before = path.read_bytes()

    def interrupted(target, **_):
        target.write_text("<svg>")
        raise KeyboardInterrupt

    monkeypatch.setattr(figure, "savefig", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(figure, path)
    assert [each.name for each in tmp_path.iterdir()] == ["figure.svg"]
    assert path.read_bytes() == before


def test_pyplot_is_never_loaded(tmp_path):
    code = (
        "import sys; from nalm.figures import save, three_panels\n"
        f"save(three_panels({[make_row()]!r}), sys.argv[1])\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "figure"], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_histograms_have_a_panel_for_each_operation(tmp_path):
    panels = {"mul": {"NALU": np.array([0.1, 0.2, 0.9]), "gated": np.array([0.0])}, "add": {"NALU": np.array([1.0])}}
    figure = figures.histograms(panels, label="gate", caption="runs")
    assert [axes.get_title() for axes in figure.axes] == ["mul", "add"]
    heights = figure.axes[0].patches[0].get_data().values
    assert heights.sum() == pytest.approx(1)
    assert heights[10] == 0
    assert len(figures.save(figure, tmp_path / "gates")) == 2


def test_pareto_front_keeps_the_best_trade_offs():
    x, y = np.array([1, 2, 3, 4]), np.array([4.0, 1.0, 2.0, np.nan])
    figure = figures.pareto({"add": {"NPU": (x, y)}}, labels=("parameters", "error"))
    front = figure.axes[0].lines[-1]
    assert list(front.get_xdata()) == [1, 2]
    assert list(front.get_ydata()) == [4.0, 1.0]


def test_surfaces_show_learnt_function_and_error():
    axis = np.linspace(-6, 6, 13)
    a, b = np.meshgrid(axis, axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        drawn = [figures.Surface("sum", axis, a + b, a + b), figures.Surface("quotient", axis, a, a / b)]
    figure = figures.surfaces(drawn, caption="two surfaces")
    assert [axes.get_title() for axes in figure.axes[:4]] == ["sum", "quotient", "", ""]
    with pytest.raises(ValueError, match="at least one surface"):
        figures.surfaces([])

"""The `nalm` command: parse, call one function, print."""

from __future__ import annotations

import io
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import typer

from nalm import __version__, terminal
from nalm.checks import whole
from nalm.commands import (
    Json,
    UsageError,
    command,
    complain,
    module_names,
    no_output,
    noise_level,
    setting,
    split_names,
    whole_number,
)
from nalm.files import read_text, write, write_table
from nalm.interrupts import prompt_interrupts, stopped
from nalm.native import cores
from nalm.progress import progress_bar

app = typer.Typer(
    name="nalm",
    help="Neural Arithmetic Logic Modules: layers that learn exact arithmetic.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`nalm bench -h` shows what a command takes; `nalm --install-completion` completes names in your shell.",
)
listing = typer.Typer(help="Show what there is.", rich_markup_mode=None)
app.add_typer(listing, name="list")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nalm {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Neural Arithmetic Logic Modules: layers that learn exact arithmetic."""


@command(listing, "modules")
def list_modules(as_json: Json = False) -> None:
    """Every module: what it can express exactly, for which inputs, and where it comes from."""
    from nalm.registry import PAPERS, modules

    rows = [
        {
            "name": record.name,
            "label": record.label,
            "operations": list(record.operations),
            "domain": record.domain,
            "paper": PAPERS.get(record.paper, record.paper),
            "summary": record.summary,
            "fused": record.fused,
            "robust": record.robust is not None,
        }
        for record in modules().values()
    ]
    if as_json:
        typer.echo(json.dumps({"modules": rows}, ensure_ascii=False))
        return
    headings = ("name", "label", "exact operations", "inputs", "what it does")
    lines = [(one.name, one.label, " ".join(one.operations), one.domain, one.summary) for one in modules().values()]
    terminal.print_table(headings, lines)


@command(listing, "tasks")
def list_tasks(as_json: Json = False) -> None:
    """Every task that modules can be benchmarked on."""
    from nalm.tasks import TASKS

    _print_pairs("tasks", {name: task.summary for name, task in TASKS.items()}, as_json)


@command(listing, "experiments")
def list_experiments(as_json: Json = False) -> None:
    """Every published experiment that `nalm reproduce` runs, with the time that it will take on this machine."""
    from nalm.experiments import LEFT_OUT, load_all
    from nalm.planning import estimate

    rows: list[dict[str, Any]] = [
        {
            "id": one.id,
            "title": one.title,
            "source": one.source,
            "task": one.task,
            "also": list(one.also),
            "claims": len(one.claims),
            "seconds_quick": round(estimate(one, "quick"), 1),
            "seconds_paper": round(estimate(one, "paper"), 1),
        }
        for one in load_all()
    ]
    if as_json:
        left_out = [{"ids": names, "reason": reason} for names, reason in LEFT_OUT.items()]
        typer.echo(json.dumps({"experiments": rows, "left_out": left_out}, ensure_ascii=False))
        return
    headings = ("id", "also", "title", "task", "quick", "paper")
    lines = []
    for row in rows:
        times = (_duration(row[key]) for key in ("seconds_quick", "seconds_paper"))
        lines.append([row["id"], " ".join(row["also"]), row["title"], row["task"], *times])
    terminal.print_table(headings, lines)
    for names, reason in LEFT_OUT.items():
        typer.echo(f"left out: {names}: {reason}")
    typer.echo(f"{len(rows)} experiments; times are estimates for {cores()} cores of this machine")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@command(listing, "distributions")
def list_distributions(as_json: Json = False) -> None:
    """Every form of a range or distribution, by example."""
    from nalm.sampling import FORMS

    _print_pairs("distributions", FORMS, as_json)


def _print_pairs(kind: str, pairs: dict[str, str], as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({kind: [{"name": name, "summary": text} for name, text in pairs.items()]}, ensure_ascii=False))
        return
    for name, text in pairs.items():
        typer.echo(f"{name:20} {text}")


@command(app, "bench")
def bench(
    task: Annotated[str, typer.Argument(help="Task; `nalm list tasks` shows them.")],
    module: Annotated[
        str,
        typer.Option(
            help="Names (`nalm list modules`), joined by plus signs (nau+nmu), or your package.file:Class; separated by commas."
        ),
    ],
    operation: Annotated[str, typer.Option(help="What is learned: add, sub, mul, div...; and, or, xor...; lt, le, eq...")],
    inputs: Annotated[
        int | None, typer.Option(parser=whole_number, help="Number of inputs; default: as published for the task.")
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range", help='Training range such as "U[1,2)" or "U[1,2) -> U[2,6)"; may be repeated. Default: the nine.'
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(parser=whole_number, help="Runs a range.")] = 25,
    iterations: Annotated[int | None, typer.Option(parser=whole_number, help="Training steps; default: as published.")] = None,
    recipe: Annotated[str, typer.Option(help="`published`, or `robust`: reliable training beyond the papers.")] = "published",
    set_values: Annotated[
        list[str] | None, typer.Option("--set", help="A value of the recipe, such as learning_rate=0.01; may be repeated.")
    ] = None,
    data: Annotated[
        list[str] | None, typer.Option("--data", help="A value of the task, such as hidden=4 or overlap=0; may be repeated.")
    ] = None,
    options: Annotated[
        list[str] | None, typer.Option("--option", help="An option of the modules, such as redundancy=10; may be repeated.")
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, fused or torch.")] = "auto",
    threshold: Annotated[str, typer.Option(help="Test error that counts as solved: a number, or `simulated`.")] = "1e-5",
    out: Annotated[str | None, typer.Option(help="Folder for store, table and figure; what it holds is not run again.")] = None,
    with_runs: Annotated[bool, typer.Option("--runs", help="With --json: list every run too.")] = False,
    as_json: Json = False,
) -> None:
    """Train modules on an operation over ranges and seeds; print the table, and store results and figure under --out."""
    from nalm.runner import benchmark

    if with_runs and not as_json:
        raise typer.BadParameter("--runs goes with --json")
    values = dict(setting(text) for text in set_values or [])
    if iterations is not None:
        if "iterations" in values:
            raise typer.BadParameter("--iterations and --set iterations=... exclude each other")
        values["iterations"] = iterations
    names = module_names(module)
    with progress_bar() as progress:
        result = benchmark(
            names,
            task,
            operation,
            ranges,
            seeds,
            engine,
            inputs=inputs,
            threshold=threshold,
            out=out,
            data=dict(setting(text, "--data") for text in data or []),
            module_options=dict(setting(text, "--option") for text in options or []),
            progress=progress,
            recipe=recipe,
            **values,
        )
    files = []
    if out is not None:
        files = [str(path) for path in result.plot(os.path.join(out, f"{task}-{operation}"))]
        files.append(str(write_table(os.path.join(out, f"{task}-{operation}.csv"), result.rows)))
    for failure in result.failures[:5]:
        sys.stderr.write(f"nalm: failed: {failure}\n")
    if as_json:
        document = {
            "rows": result.rows,
            "engine": result.engine,
            "seconds": result.seconds,
            "compile_seconds": result.compile_seconds,
            **({"runs": result.runs} if with_runs else {}),
        }
        typer.echo(json.dumps(document, ensure_ascii=False))
        return
    _print_bench(result, files)


def _print_bench(result: Any, files: list[str]) -> None:
    headings = ("module", "range", "runs", "success rate", "solved at (median)", "solved at (mean)", "sparsity error")
    lines = [
        (
            result.labels[row["module"]],
            row["interpolation"],
            str(row["runs"]),
            terminal.with_interval({**row, "success_mean": row["success_rate"]}, "success", ".2f"),
            terminal.number(row["solved_at_median"], ",.0f"),
            terminal.with_interval(row, "solved_at", ",.0f"),
            terminal.with_interval(row, "sparsity", ".1e"),
        )
        for row in result.rows
    ]
    terminal.print_table(headings, lines)
    typer.echo(f"{result.engine} engine, {result.seconds:.1f} s training, {result.compile_seconds:.1f} s compiling")
    for path in files:
        typer.echo(f"wrote {path}")


@command(app, "reproduce")
def reproduce_command(
    identity: Annotated[str | None, typer.Argument(metavar="ID", help="Figure or table, such as T:fig5.7.")] = None,
    budget: Annotated[
        str | None, typer.Option(help="quick (about half a minute) or paper (as published); default: quick.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(parser=whole_number, help="Runs a condition; default: as budgeted.")] = None,
    out: Annotated[
        str | None, typer.Option(help="Folder for store, tables and figures; what it holds is not run again.")
    ] = None,
    series: Annotated[str | None, typer.Option(help="Series to run, separated by commas; default: all.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Folder of MNIST, for images; default: NALM_DATA, else small digits that come along.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run every experiment.")] = False,
    page: Annotated[str | None, typer.Option(help="Write all reports under --out to this Markdown page.")] = None,
    as_json: Json = False,
) -> None:
    """Run a published experiment, draw its figure, and set the result beside what was published."""
    from nalm import pages, reproduction
    from nalm.experiments import BUDGETS

    if page is not None and identity is not None and ":" in identity:
        raise typer.BadParameter("--page is for all experiments of the papers: give it without an id")
    if (identity is not None and every) or (identity is None and not every and page is None):
        raise typer.BadParameter("give the id of an experiment, or --all; `nalm list experiments` shows the ids")
    if identity is None and not every and any(one is not None for one in (budget, seeds, data_dir)):
        raise typer.BadParameter("--budget, --seeds and --data-dir go with an id or --all: --page alone runs nothing")
    budget = "quick" if budget is None else budget
    if budget not in BUDGETS:
        raise typer.BadParameter(f"unknown budget {budget!r}; there are: {', '.join(BUDGETS)}")
    if series is not None and identity is None:
        raise typer.BadParameter("--series goes with the id of one experiment")
    if page is not None and out is None:
        raise typer.BadParameter("--page needs --out, the folder with the reports")
    reports = []
    with progress_bar() as progress:
        if identity is not None:
            names = split_names(series, "--series") if series is not None else None
            reports.append(
                reproduction.reproduce(identity, budget, seeds, out, series=names, data_dir=data_dir, progress=progress)
            )
        elif every:
            reports = reproduction.reproduce_all(budget, seeds, out, data_dir=data_dir, progress=progress)
    if page is not None:
        previous = read_text(page) if Path(page).is_file() else ""
        text = pages.page(str(out), previous) if identity is None else pages.own_page(str(out))
        write(page, text)
    if as_json:
        typer.echo(json.dumps({"reports": [report.to_json() for report in reports]}, ensure_ascii=False))
        return
    if identity is not None:
        _print_report(reports[0], out)
    elif every:
        _print_summary(reports)
    if page is not None:
        typer.echo(f"wrote {page}")


def _print_report(report: Any, out: str | None) -> None:
    from nalm import pages

    document, experiment = report.to_json(), report.experiment
    typer.echo(f"{experiment.id}: {experiment.title} ({experiment.source})")
    if experiment.note:
        typer.echo(" ".join(experiment.note.split()))
    if experiment.table == "problems":
        terminal.print_rows([pages.problem_cells(line) for line in document["table"]])
    elif experiment.table == "networks" or experiment.groups or not report.rows:
        terminal.print_rows(document["table"])
    else:
        terminal.print_rows([_compact(row) for row in document["table"]])
    if report.verdicts:
        headings = ("claim", "what", "published", "measured", "verdict")
        lines = []
        for claim in document["claims"]:
            reason = f": {claim['reason']}" if claim["reason"] and claim["verdict"] != "differ" else ""
            lines.append([claim["id"], claim["what"], claim["published"], claim["measured"], claim["verdict"] + reason])
        terminal.print_table(headings, lines)
        for names, why in pages.explanations(document).items():
            typer.echo(f"differ, {names}: {why}")
    counts = ", ".join(f"{count} {name}" for name, count in report.counts().items())
    typer.echo(f"{len(report.verdicts)} published claims: {counts}")
    trained = f"{report.seeds} seeds, {report.engine} engine, " if report.rows else ""
    typer.echo(f"{trained}{report.seconds:.1f} s, {report.compile_seconds:.1f} s compiling, {report.budget} budget")
    if out is not None:
        typer.echo(f"wrote {os.path.join(out, experiment.slug)}")


def _compact(row: dict[str, Any]) -> dict[str, Any]:
    """A row of a report with each number and its interval in one column."""
    hidden = ("extrapolation", "threshold", "solved_at_median")
    plain = {
        key: value for key, value in row.items() if not key.startswith(("success", "solved", "sparsity")) and key not in hidden
    }
    success = f"{row['success_rate']:.2f} [{row['success_low']:.2f}, {row['success_high']:.2f}]"
    return {
        **plain,
        "success rate": success,
        "solved at": terminal.with_interval(row, "solved_at", ",.0f"),
        "sparsity error": terminal.with_interval(row, "sparsity", ".1e"),
    }


def _print_summary(reports: list[Any]) -> None:
    headings = ("id", "title", "claims", "agree", "differ", "not comparable", "time")
    lines = []
    for report in reports:
        counts = [str(count) for count in report.counts().values()]
        seconds = f"{report.seconds + report.compile_seconds:.0f} s"
        lines.append([report.experiment.id, report.experiment.title, str(len(report.verdicts)), *counts, seconds])
    terminal.print_table(headings, lines)
    total = sum(report.seconds + report.compile_seconds for report in reports)
    typer.echo(f"{len(reports)} experiments, {total / 60:.0f} minutes")


@command(app, "discover")
def discover_command(
    file: Annotated[str, typer.Argument(help="csv, tsv (also .gz), xlsx, parquet, feather or json; or `planets`.")],
    target: Annotated[str | None, typer.Option(help="Column that the law is to give.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times: find the differential equation of the others.")] = None,
    features: Annotated[str | None, typer.Option(help="Columns that it may use, separated by commas; default: all.")] = None,
    noise: Annotated[str, typer.Option(help="Standard deviation of the target's noise, or `auto`.")] = "auto",
    operations: Annotated[str | None, typer.Option(help="Of add, sub, mul, div, pow; default: all.")] = None,
    max_terms: Annotated[int, typer.Option(parser=whole_number, help="Most terms of the formula.")] = 4,
    seed: Annotated[int, typer.Option(parser=whole_number, help="Seed of the search.")] = 0,
    sep: Annotated[str | None, typer.Option(help="What separates cells: a character, `tab` or `space`.")] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal mark: a point or a comma.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of a text, such as latin-1.")] = None,
    sheet: Annotated[str | None, typer.Option(help="Sheet of an xlsx file; default: the first.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the formula beside the data into this file.")] = None,
    as_json: Json = False,
) -> None:
    """Look for the law in a table of numbers: a formula, how good it is, and what the data do not say."""
    from nalm.discover import discover, read_table
    from nalm.figures import ready

    if (target is None) == (time is None):
        raise typer.BadParameter("give either --target, the column that a law is to give, or --time, the column of times")
    table = read_table(file, sep=sep, decimal=decimal, encoding=encoding, sheet=sheet)
    seed, max_terms = whole("--seed", seed, 0, 2**32 - 1), whole("--max-terms", max_terms, 1)
    if plot is not None:
        ready(plot)
    if time is not None:
        if noise != "auto" or operations is not None:
            raise typer.BadParameter("--noise and --operations go with --target, not with --time")
        _discover_ode(table, time, features, max_terms, seed, plot, as_json)
        return
    settings: dict[str, Any] = {"max_terms": max_terms}
    if operations is not None:
        settings["operations"] = tuple(split_names(operations, "--operations"))
    found = discover(
        table,
        str(target),
        split_names(features, "--features") if features is not None else None,
        noise=noise if noise == "auto" else noise_level(noise),
        random_state=seed,
        **settings,
    )
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
    else:
        _print_discovery(found)
    _draw(found, plot, as_json)


def _draw(found: Any, plot: str | None, silent: bool) -> None:
    """Save the figure of what was found, after it was printed: if the file cannot be written, nothing is lost."""
    if plot is not None:
        from nalm.figures import save

        for path in save(found.figure(), plot):
            if not silent:
                typer.echo(f"wrote {path}")


def _discover_ode(
    table: Any, time: str, states: str | None, max_terms: int, seed: int, plot: str | None, as_json: bool
) -> None:
    from nalm.dynamics import discover_ode

    names = split_names(states, "--features") if states is not None else None
    with progress_bar() as progress:
        found = discover_ode(table, time, names, max_terms=max_terms, seed=seed, progress=progress)
    document = found.to_json()
    if as_json:
        typer.echo(json.dumps(document, ensure_ascii=False))
        _draw(found, plot, as_json)
        return
    typer.echo(str(found) + ("" if found.found else "\n(no law found; the best short description)"))
    typer.echo("LaTeX:\n" + document["latex"])
    error = "the solution cannot be followed" if found.status == "diverged" else f"{document['relative_error']:.2g}"
    typer.echo(f"error of the solution in units of the states' spread: {error}; {document['rows']:,} rows")
    for remark in found.remarks:
        typer.echo(f"- {remark}")
    _draw(found, plot, as_json)


def _print_discovery(found: Any) -> None:
    document = found.to_json()
    for remark in found.left_out:
        typer.echo(f"- {remark}")
    typer.echo(
        f"{found.target} = {document['formula']}" + ("" if found.found else "    (no law found; the best short description)")
    )
    typer.echo(f"LaTeX: {document['latex']}")
    outside = "" if found.outside is None else f", {found.outside:.2g} outside (the outermost rows, found without them)"
    typer.echo(f"error in units of the target's spread: {found.inside:.2g} inside{outside}; {document['rows']:,} rows")
    if document["others"]:
        lines = [
            (one["formula"], terminal.number(one["error"], ".2g"), str(one["complexity"])) for one in document["others"][:5]
        ]
        terminal.print_table(("runner-up", "error", "complexity"), lines)
    for remark in found.remarks:
        typer.echo(f"- {remark}")


@command(app, "data")
def data_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Data set: mnist.")],
    data_dir: Annotated[str | None, typer.Option(help="Folder; default: NALM_DATA, else ./data/mnist.")] = None,
    as_json: Json = False,
) -> None:
    """Fetch a data set where there is a network, and check it."""
    from nalm.images.digits import VARIABLE, download, load

    if name != "mnist":
        raise typer.BadParameter(f"unknown data set {name!r}; there is: mnist")
    folder = data_dir or os.environ.get(VARIABLE) or os.path.join("data", "mnist")
    paths = [str(path) for path in download(folder)]
    digits = load(folder)
    counts = {"train": len(digits.train_images), "test": len(digits.test_images)}
    if as_json:
        typer.echo(json.dumps({"data": name, "folder": folder, "files": paths, **counts}))
        return
    typer.echo(
        f"{digits.source} in {folder}: {counts['train']:,} images for training, {counts['test']:,} for testing, all verified"
    )


@command(app, "speed")
def speed(
    module: Annotated[
        str | None, typer.Option(help="Names or package.file:Class, separated by commas; default: all with a kernel.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure a plain PyTorch loop, the torch engine and the fused engine in one run, and print the ratios."""
    from nalm.models import model_of
    from nalm.speed import fused_names, measure

    names = fused_names() if module is None else module_names(module)
    for model in map(model_of, names):
        if model.registered and not model.fused:
            raise typer.BadParameter(f"the fused engine has no kernel for {model.name}; it has: {', '.join(fused_names())}")
    with progress_bar() as progress:
        progress.start(len(names), "modules")
        rows = []
        for name in names:
            progress.say(f"compiling and timing {name}")
            rows += measure([name])
            progress.advance(1)
    if as_json:
        typer.echo(json.dumps({"speed": rows}))
        return
    headings = ("module", "plain loop", "torch engine", "fused engine", "torch / plain", "fused / plain", "compile")
    lines = []
    for row in rows:
        times = [terminal.number(row[key], ",.3g") + " us" for key in ("plain_us", "torch_us", "fused_us")]
        ratios = [terminal.number(row[key], ",.0f") + " x" for key in ("torch_ratio", "fused_ratio")]
        lines.append([row["module"], *times, *ratios, f"{row['compile_seconds']:.1f} s"])
    terminal.print_table(headings, lines)
    typer.echo(
        f"time of one step of one run, batch 128, two inputs (two layers: a hundred); 225 runs together on "
        f"{rows[0]['cores']} cores, compiling apart"
    )


def main() -> None:
    """Run the command; bad usage ends with one line and exit status 2."""
    warnings.formatwarning = lambda message, *where, **more: f"nalm: {message}\n"
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    if sys.stdout is None:
        sys.exit(complain("cannot write the output: standard output is closed", 1))
    try:
        with prompt_interrupts():
            status = app(standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        message = getattr(error, "format_message", error.__str__)()
        status = complain(f"{message} (nalm --help shows what there is)")
    except ValueError as error:
        status = complain(str(error))
    except BrokenPipeError:  # whoever read the output has gone
        status = no_output()
    except OSError as error:
        if error.filename is not None:
            status = complain(f"{error.filename}: {error.strerror}")
        else:
            status = no_output(complain(f"cannot write the output: {error.strerror}", 1))
    except MemoryError:
        status = complain("there is not enough memory for this", 1)
    except (typer.Abort, KeyboardInterrupt):
        status = stopped()
    sys.exit(status or 0)

"""What scripts that measure a page of the documentation share: their arguments, tables, and the block they write."""

from __future__ import annotations

import argparse
from pathlib import Path

START, END = "<!-- measured -->", "<!-- end -->"


def arguments(description: str, seeds: int) -> argparse.Namespace:
    """`--seeds`, and `--page` for the page to write into."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=seeds)
    parser.add_argument("--page", type=Path, help="Markdown page with a block of measurements; pictures go beside it")
    return parser.parse_args()


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_block(page: Path, text: str) -> None:
    """Replace what stands between the marks of a page."""
    before, rest = page.read_text(encoding="utf-8").split(START)
    _, after = rest.split(END)
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{after}", encoding="utf-8")

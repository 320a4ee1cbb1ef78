"""How formulas are written for people: digits, conditions, and names of any kind in LaTeX and in pictures."""

from __future__ import annotations

import re

import sympy as sp

__all__ = ["condition", "escaped", "latex", "plain", "shortened", "text"]

WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")
"""Names that SymPy sets well by itself."""
ESCAPES = {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
ESCAPES |= {letter: f"\\{letter}" for letter in "{}$&#_%"}


def shortened(expression: sp.Expr, digits: int = 6) -> sp.Expr:
    """The expression with decimals to so many digits."""
    return expression.xreplace({number: sp.Float(number, digits) for number in expression.atoms(sp.Float)})


def text(expression: sp.Basic) -> str:
    """The expression in a line, without zeros at the end of decimals."""
    return str(sp.sstr(expression, full_prec=False))


def latex(expression: sp.Basic, picture: bool = False) -> str:
    """The expression in LaTeX, or in what Matplotlib knows of it; names that are no plain words are text."""
    odd = (symbol for symbol in expression.free_symbols if not WORD.fullmatch(symbol.name))
    names = {symbol: rf"\text{{{escaped(symbol.name, picture)}}}" for symbol in odd}
    return str(sp.latex(expression, symbol_names=names, full_prec=False))


def escaped(name: str, picture: bool = False) -> str:
    """A name as text in LaTeX, or in a formula of Matplotlib."""
    name = " ".join(name.split())
    if picture:
        return re.sub(r"([\\{}$])", r"\\\1", name)
    return "".join(ESCAPES.get(letter, letter) for letter in name)


def plain(name: str) -> str:
    """A name in a label of a picture, where dollar signs would begin a formula."""
    return name.replace("$", r"\$")


def condition(relation: sp.Basic) -> str:
    """An equation or inequality as it is read: `a = 0`, not `Eq(a, 0)`."""
    relation = shortened(relation)
    return f"{text(relation.lhs)} = {text(relation.rhs)}" if isinstance(relation, sp.Eq) else text(relation)

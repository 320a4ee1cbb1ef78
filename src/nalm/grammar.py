"""Formulas as text: a small grammar, read into SymPy without ever evaluating what was written.

There are numbers, names, + - * / **, parentheses, and the functions of `FUNCTIONS`. Every name is a symbol (`E` and `gamma`
too), but for `pi`. Length, depth and the size of numbers are bounded, so that no text takes long to read.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Any

import sympy as sp

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FUNCTIONS", "read"]

LONGEST, DEEPEST = 10_000, 100
"""Characters of a formula; levels of parentheses, signs and powers in it."""
LONGEST_NUMBER, BITS = 50, 4_096
"""Characters of a number; bits of an exact power of numbers."""
LARGEST_EXPONENT = 1_000
FUNCTIONS: Mapping[str, Any] = {"sqrt": sp.sqrt, "cbrt": sp.cbrt, "abs": sp.Abs, "Abs": sp.Abs}
"""The functions that have a meaning in a formula."""
TOKEN = re.compile(
    r"(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[^\W\d]\w*)|(?P<sign>\*\*|[-+*/()])|(?P<end>$))",
    re.ASCII,
)
NAME = re.compile(r"[^\W\d]\w*")


def read(text: str, symbols: Mapping[str, sp.Symbol] | None = None) -> sp.Expr:
    """The expression that a text describes; ValueError in one sentence, with the place, for any other text.

    Names stand for `symbols`, others for new ones.

    >>> read("2*E + sqrt(N)/3")
    2*E + sqrt(N)/3
    """
    if len(text) > LONGEST:
        raise ValueError(f"a formula may have {LONGEST:,} characters, this one has {len(text):,}")
    known = {unicodedata.normalize("NFC", name): symbol for name, symbol in (symbols or {}).items()}
    return _Reader(unicodedata.normalize("NFC", text), {"pi": sp.pi, **known}).formula()


class _Reader:
    """Reads a formula from left to right, one token ahead."""

    def __init__(self, text: str, symbols: dict[str, Any]) -> None:
        self.text, self.symbols = text, symbols
        self.at = self.after = self.depth = 0
        self.kind, self.token = "", ""
        self.step()

    def step(self) -> str:
        """Go to the next token; the one before it."""
        before = self.token
        self.at = len(self.text) - len(self.text[self.after :].lstrip())
        found = TOKEN.match(self.text, self.at)
        if found is not None and found.lastgroup != "name":
            self.kind, self.token, self.after = str(found.lastgroup), found[str(found.lastgroup)], found.end()
        elif name := NAME.match(self.text, self.at):
            self.kind, self.token, self.after = "name", name[0], name.end()
        else:
            hint = ": powers are written with **" if self.text[self.at] == "^" else ""
            self.fail(f"{self.text[self.at]!r} has no meaning{hint}")
        return before

    def fail(self, what: str) -> Any:
        """Say what is wrong, and where."""
        shown = self.text if len(self.text) <= 60 else f"{self.text[max(0, self.at - 30) : self.at + 30]}"
        raise ValueError(f"cannot read the formula {shown!r}: {what} (character {self.at + 1:,})")

    def formula(self) -> Any:
        """The whole text."""
        value = self.sum()
        if self.kind != "end":
            self.fail(f"an operator should stand before {self.token!r}" if self.token != ")" else "no ( goes with this )")
        return value

    def sum(self) -> Any:
        """Products with + or - between them."""
        terms = [self.product()]
        while self.token in ("+", "-"):
            sign = self.step()
            terms.append(self.product() if sign == "+" else -self.product())
        return self.checked(sp.Add(*terms))

    def product(self) -> Any:
        """Factors with * or / between them."""
        factors = [self.factor()]
        while self.token in ("*", "/"):
            divides, at = self.step() == "/", self.at
            factors.append(self.power(self.factor(), sp.Integer(-1), at) if divides else self.factor())
        return self.checked(sp.Mul(*factors))

    def factor(self) -> Any:
        """A power with its sign."""
        self.depth += 1
        if self.depth > DEEPEST:
            self.fail(f"a formula may have {DEEPEST} levels")
        if self.token in ("+", "-"):
            value = -self.factor() if self.step() == "-" else self.factor()
        else:
            value = self.operand()
            if self.token == "**":
                at = self.at
                self.step()
                value = self.power(value, self.factor(), at)
        self.depth -= 1
        return value

    def operand(self) -> Any:
        """A number, a name, a function of a sum, or a sum in parentheses."""
        kind, at = self.kind, self.at
        if kind == "end":
            self.fail("it ends where a number or a name should stand")
        token = self.step()
        if kind == "number":
            return self.number(token, at)
        if kind == "name" and self.token != "(":
            if token not in self.symbols and not token.isidentifier():
                self.at = at
                self.fail(f"{token} is no name: names have letters, digits and _")
            return self.symbols.get(token) or sp.Symbol(token)
        if kind == "name":
            if token not in FUNCTIONS:
                self.at = at
                self.fail(f"{token} is no function here; only sums, products, quotients and powers, sqrt and abs can be read")
            self.step()
            return self.checked(FUNCTIONS[token](self.closed()))
        if token != "(":
            self.at = at
            self.fail(f"a number or a name should stand before {token!r}")
        return self.closed()

    def closed(self) -> Any:
        """A sum up to its closing parenthesis."""
        value = self.sum()
        if self.token != ")":
            self.fail("a ) is missing")
        self.step()
        return value

    def number(self, token: str, at: int) -> Any:
        """A number, exact if it is whole."""
        if len(token) > LONGEST_NUMBER or (float(token) == 0) != (re.sub("[eE].*", "", token).strip("0.") == ""):
            self.at = at
            self.fail(f"numbers have at most {LONGEST_NUMBER} characters and the range of float64")
        return self.checked(sp.Integer(token) if token.isdigit() else sp.Float(token))

    def power(self, base: Any, exponent: Any, at: int) -> Any:
        """A power, if its size can be told to be bearable before it is taken: SymPy takes that of numbers and factors."""
        self.at = at
        if exponent.is_number:
            if not abs(exponent) <= LARGEST_EXPONENT:
                self.fail(f"exponents go up to {LARGEST_EXPONENT:,}")
            if base.is_zero and not exponent.is_nonnegative:
                self.fail("this is a division by zero")
            taken = base if base.is_number else base.as_independent(*base.free_symbols, as_Add=False)[0]
            bits = max((max(n.p.bit_length(), n.q.bit_length()) for n in taken.atoms(sp.Rational)), default=0)
            if bits * abs(exponent) > BITS:
                self.fail("the number is too large")
        elif base.is_number and base.is_Rational and base.p.bit_length() > BITS:
            self.fail("the number is too large")
        return self.checked(base**exponent)

    def checked(self, value: Any) -> Any:
        """A value, if its numbers are finite and its exponents bearable."""
        if value.has(sp.nan, sp.zoo, sp.oo, -sp.oo):
            self.fail("this is no finite number")
        if value.is_Pow and value.exp.is_number and not abs(value.exp) <= LARGEST_EXPONENT:
            self.fail(f"exponents go up to {LARGEST_EXPONENT:,}")
        if value.is_Number and not abs(value) < sp.Float("1.7e308"):
            self.fail("the number is too large")
        return value

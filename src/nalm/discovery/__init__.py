"""From a table of numbers to candidate laws."""

from nalm.discovery.fitting import neighbours, refitted, rounded
from nalm.discovery.law import Law, Term
from nalm.discovery.screening import ranked, speaks
from nalm.discovery.search import OPERATIONS, Settings, search
from nalm.discovery.table import EXACT, Candidate, Table

__all__ = [
    "EXACT",
    "OPERATIONS",
    "Candidate",
    "Law",
    "Settings",
    "Table",
    "Term",
    "neighbours",
    "ranked",
    "refitted",
    "rounded",
    "search",
    "speaks",
]

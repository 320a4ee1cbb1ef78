"""From a table of numbers to candidate laws."""

from nalm.discovery.fitting import refitted
from nalm.discovery.law import Law, Term
from nalm.discovery.search import Settings, search
from nalm.discovery.table import EXACT, Candidate, Table

__all__ = ["EXACT", "Candidate", "Law", "Settings", "Table", "Term", "refitted", "search"]

"""From a table of numbers to candidate laws."""

from nalm.discovery.fitting import refitted, rounded
from nalm.discovery.law import Law, Term
from nalm.discovery.screening import ranked, speaks
from nalm.discovery.search import OPERATIONS, Settings, search
from nalm.discovery.table import EXACT, Candidate, Table
from nalm.discovery.verdict import Evidence, TableEvidence, chance, verdict

__all__ = [
    "EXACT",
    "OPERATIONS",
    "Candidate",
    "Evidence",
    "Law",
    "Settings",
    "Table",
    "TableEvidence",
    "Term",
    "chance",
    "ranked",
    "refitted",
    "rounded",
    "search",
    "speaks",
    "verdict",
]

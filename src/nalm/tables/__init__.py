"""Tables: one reader for files of every kind, cells as numbers, and small tables of real numbers to try `nalm discover` on.

`planets`: the planets' mean distance from the sun (in that of the Earth), eccentricity of the orbit, mass (10**24 kg), mean
radius (km) and year (in that of the Earth), after the lists of NASA's Jet Propulsion Laboratory.
"""

from nalm.tables.cells import MANY, Cells, cells_of, missing_rows
from nalm.tables.reading import read_table

__all__ = ["MANY", "Cells", "cells_of", "missing_rows", "read_table"]

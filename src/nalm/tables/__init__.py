"""Small tables of real numbers, to try `nalm discover` on.

`planets`: the planets' mean distance from the sun (in that of the Earth), eccentricity of the orbit, mass (10**24 kg), mean
radius (km) and year (in that of the Earth), after the lists of NASA's Jet Propulsion Laboratory.
"""

__all__: list[str] = []

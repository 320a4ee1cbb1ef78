"""Read the fractional SIR model off 40 points of S, I and R, and follow it beyond them; with a file name, draw it."""

import sys

import numpy as np

import nalm
from nalm.dynamics import SYSTEMS

FUTURE = 300.0


def main():
    system = SYSTEMS["fsir"]
    times, states = system.sample()
    fit = nalm.fit_ode(times, states, names=system.names)
    print(f"{len(times)} points up to t = {times[-1]:g}")
    print(fit)
    later, truth = system.sample(31, FUTURE)
    gap = np.abs(fit.predict(later) - truth) / np.ptp(truth, axis=0)
    print(f"largest error up to t = {FUTURE:g}: {gap.max():.1e} of a state's range")
    if len(sys.argv) > 1:
        fit.figure(until=FUTURE).savefig(sys.argv[1], dpi=150)


if __name__ == "__main__":
    main()

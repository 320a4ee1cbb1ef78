"""Find the laws of four systems from their time series, without and with noise of one per cent."""

import time

import numpy as np

import nalm
from nalm.dynamics import SYSTEMS


def main():
    for noise in (0.0, 0.01):
        print(f"noise: {noise:.0%} of the spread of each state")
        for system in SYSTEMS.values():
            times, states = system.sample()
            noisy = states + noise * states.std(0) * np.random.default_rng(0).normal(size=states.shape)
            began = time.perf_counter()
            fit = nalm.fit_ode(times, noisy, names=system.names)
            verdict = "found" if fit.found else "not a law"
            print(f"  {system.label}: {verdict}, {len(times)} points, {time.perf_counter() - began:.1f} s")
            for line in str(fit).splitlines():
                print(f"    {line}")


if __name__ == "__main__":
    main()

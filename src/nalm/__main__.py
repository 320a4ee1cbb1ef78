"""Run the command line with ``python -m nalm``."""

from nalm.cli import main

main()

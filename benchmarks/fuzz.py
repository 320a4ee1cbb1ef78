"""The long run of the tests with random and damaged input: thousands of examples each, in place of sixty.

python benchmarks/fuzz.py [arguments of pytest]
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = ("tests/test_fuzz.py", "tests/test_bad_input.py")


def main() -> int:
    """Run the tests with the long profile; the status of pytest."""
    root = Path(__file__).parent.parent
    command = [sys.executable, "-m", "pytest", *TESTS, "-p", "no:xdist", "-x", *sys.argv[1:]]
    return subprocess.run(command, cwd=root, env={**os.environ, "HYPOTHESIS_PROFILE": "long"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())

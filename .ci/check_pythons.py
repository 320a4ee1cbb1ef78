"""Whether the pinned versions can be installed together on each Python that nalm supports.

Asks the package index and installs nothing. pip evaluates conditions such as `python_version < "3.11"` for the Python that it
runs on, whatever `--python-version` says, so they are evaluated here.

    .venv/bin/python .ci/check_pythons.py [VERSION ...]
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import tomllib
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
VERSIONS = ("3.10", "3.11", "3.12", "3.13")


def for_python(lines: list[str], version: str) -> list[str]:
    """The requirements that count on a Python, without their conditions."""
    environment = {"python_version": version, "python_full_version": f"{version}.0"}
    kept = []
    for line in lines:
        one = Requirement(line)
        if one.marker is None or one.marker.evaluate(environment):
            one.marker = None
            kept.append(str(one))
    return kept


def main() -> int:
    """Check every version; give the number of those that fail."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(one for extra in extras for one in extra)]
    pins = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    failed = 0
    for version in sys.argv[1:] or VERSIONS:
        with tempfile.TemporaryDirectory() as folder:
            constraints = Path(folder) / "constraints.txt"
            constraints.write_text("\n".join(for_python(pins, version)))
            command = [
                *(sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"),
                *("--only-binary=:all:", "--target", folder, "--python-version", version, "--constraint", str(constraints)),
                *for_python(wanted, version),
            ]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        failed += result.returncode != 0
        print(f"Python {version}: {'can be installed' if result.returncode == 0 else result.stderr.strip()}")
    return failed


if __name__ == "__main__":
    sys.exit(main())

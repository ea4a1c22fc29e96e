"""`make vulnerabilities`: known vulnerabilities of the locked packages, by pip-audit, where its service answers.

Exit 0 when there are none, or when nobody could be asked, which one line then says; 1 with a line for each that is known.
"""

import json
import subprocess
import sys
from typing import Any

from include.setup.install import FOR_DEVELOPERS, REQUIREMENTS, ROOT

SECONDS = 300


def main() -> int:
    """Ask about both lock files."""
    locks = [word for lock in (REQUIREMENTS, FOR_DEVELOPERS) for word in ("--requirement", str(ROOT / lock))]
    options = ["--disable-pip", "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    command = [sys.executable, "-m", "pip_audit", *locks, *options]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
        packages = audited(done.stdout)
    except subprocess.TimeoutExpired:
        print(f"NOT AUDITED: no vulnerability service answered within {SECONDS} s")
        return 0
    except ValueError:
        print("NOT AUDITED: no vulnerability service answered (pip-audit reports on no package)")
        return 0
    found = findings(packages)
    print("\n".join(found) or f"no known vulnerability in {len(packages)} locked packages")
    return 1 if found else 0


def audited(report: str) -> list[dict[str, Any]]:
    """The packages of pip-audit's report that its service knew; raises ValueError where it knew none, or there is no report."""
    packages = [package for package in json.loads(report)["dependencies"] if "skip_reason" not in package]
    if not packages:
        raise ValueError("every package was skipped")
    return packages


def findings(packages: list[dict[str, Any]]) -> list[str]:
    """A line for each vulnerability."""
    return [
        f"{package['name']} {package['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for package in packages
        for known in package.get("vulns", [])
    ]


if __name__ == "__main__":
    sys.exit(main())

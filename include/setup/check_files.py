"""Checks the files that no other linter reads: lock files and YAML. Prints every finding; exit 1 if there is one."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from include.setup.install import FOR_DEVELOPERS, LOCKS, REQUIREMENTS, ROOT

JAR_LINE = re.compile(r"[0-9a-f]{64}  (?P<jar>[\w.-]+:[\w.-]+):[\w.-]+")
PIN = re.compile(r"(?P<name>[\w.-]+)(\[[\w,.-]+\])?==(?P<version>[^\s;\\]+)")


def main() -> int:
    """Run every check on this checkout."""
    findings: list[str] = []
    for lock in (REQUIREMENTS, FOR_DEVELOPERS):
        locked = ROOT / lock
        findings += check_requirements(locked.with_suffix(".in").read_text(), locked.read_text())
    findings += check_agreement((ROOT / REQUIREMENTS).read_text(), (ROOT / FOR_DEVELOPERS).read_text())
    for lock_file in LOCKS.values():
        findings += [f"{lock_file.relative_to(ROOT)}:{finding}" for finding in check_jar_lock(lock_file.read_text())]
    documents = [*project_files(".yaml", ".yml")]
    for file in documents:
        findings += check_yaml(file)
    print("\n".join(findings) or f"locks agree, {len(documents)} YAML files parse")
    return 1 if findings else 0


def project_files(*suffixes: str) -> Iterator[Path]:
    """Files of the checkout with one of these suffixes, without those that were installed or generated (dot folders, `artifacts`)."""
    for entry in sorted(ROOT.iterdir()):
        if entry.is_file() and entry.name.endswith(suffixes):
            yield entry
        elif entry.is_dir() and (entry.name == ".ci" or not entry.name.startswith((".", "artifacts"))):
            yield from sorted(file for file in entry.rglob("*") if file.is_file() and file.name.endswith(suffixes))


def check_requirements(wanted: str, locked: str) -> Iterator[str]:
    """What keeps the text of requirements.txt from being a lock of the text of requirements.in: hashes, pins, versions."""
    pins: dict[str, str] = {}
    for entry in locked.replace("\\\n", " ").splitlines():
        text = entry.split("#", 1)[0].strip()
        if not text:
            continue
        pin = PIN.match(text)
        if pin is None or "--hash=sha256:" not in text:
            yield f"requirements.txt: found {text[:80]!r}, expected name==version and at least one --hash=sha256:..."
        else:
            pins[canonicalize_name(pin["name"])] = pin["version"]
    for entry in wanted.splitlines():
        text = entry.split("#", 1)[0].strip()
        try:
            requirement = Requirement(text) if text else None
        except InvalidRequirement:
            yield f"requirements.in: found {text!r}, expected a requirement such as name==1.2"
            continue
        if requirement is not None:
            version = pins.get(canonicalize_name(requirement.name))
            if version is None or not requirement.specifier.contains(version, prereleases=True):
                yield f"requirements.txt: found {requirement.name} {version}, expected {requirement} (of requirements.in): lock again"


def check_agreement(production: str, development: str) -> Iterator[str]:
    """Packages that both lock files pin, to different versions: a developer would not test what runs."""
    first, second = (
        {pin["name"]: pin["version"] for pin in re.finditer(f"^{PIN.pattern}", text, re.MULTILINE)} for text in (production, development)
    )
    for name in sorted(first.keys() & second.keys()):
        if first[name] != second[name]:
            yield f"{FOR_DEVELOPERS}: found {name} {second[name]}, expected {first[name]} (of {REQUIREMENTS}): lock again"


def check_jar_lock(text: str) -> Iterator[str]:
    """Lines of a jar lock that are not `sha256  group:artifact:version`, and jars that are in it twice."""
    lines = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line and not line.startswith("#")]
    if not lines:
        yield "1: found no jar"
    seen: set[str] = set()
    for number, line in lines:
        entry = JAR_LINE.fullmatch(line)
        if entry is None:
            yield f"{number}: found {line!r}, expected `sha256  group:artifact:version`"
            continue
        if entry["jar"] in seen:
            yield f"{number}: found {entry['jar']} twice, expected one version"
        seen.add(entry["jar"])


def check_yaml(file: Path) -> Iterator[str]:
    """Why a YAML file cannot be read, in one line."""
    try:
        list(yaml.safe_load_all(file.read_text()))
    except yaml.YAMLError as error:
        yield f"{file.relative_to(ROOT)}: {' '.join(str(error).split())}"


if __name__ == "__main__":
    sys.exit(main())

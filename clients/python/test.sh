#!/usr/bin/env bash
# Checks the types of the Python client and runs its tests, the last of them against the server PUNCTUAL_BIN.
set -euo pipefail

: "${PUNCTUAL_BIN:?set PUNCTUAL_BIN to the punctual binary that the end-to-end tests start}"
PUNCTUAL_BIN=$(realpath "$PUNCTUAL_BIN")
test -x "$PUNCTUAL_BIN" || { echo "$PUNCTUAL_BIN is no program" >&2; exit 1; }
export PUNCTUAL_BIN

cd "$(dirname "$0")"
# Made again when what it is made of changes.
made_of=$(cat pyproject.toml test.sh | sha256sum | cut -c1-16)
if [ "$(cat .venv/made-of 2>/dev/null || true)" != "$made_of" ]; then
  rm -rf .venv
  "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install --quiet --editable '.[dev]'
  echo "$made_of" >.venv/made-of
fi

# The package as its oldest Python reads it; the tests as pytest needs it.
.venv/bin/python -m mypy --python-version 3.9 src examples/resume.py examples/once.py
.venv/bin/python -m mypy
report=$(mktemp)
trap 'rm -f "$report"' EXIT
.venv/bin/python -m pytest --junitxml "$report"
.venv/bin/python - "$report" <<'PYTHON'
import sys
import xml.etree.ElementTree

suite = xml.etree.ElementTree.parse(sys.argv[1]).getroot().find("testsuite")
if int(suite.get("skipped")) > 0:
    sys.exit(f"{suite.get('skipped')} tests were skipped")
print(f"python client: {suite.get('tests')} tests")
PYTHON

#!/usr/bin/env bash
# Holds the server PUNCTUAL_BIN against the committed OpenAPI document: thousands of requests that schemathesis makes from it.
set -euo pipefail

: "${PUNCTUAL_BIN:?set PUNCTUAL_BIN to the punctual binary that is tried}"
PUNCTUAL_BIN=$(realpath "$PUNCTUAL_BIN")
test -x "$PUNCTUAL_BIN" || { echo "$PUNCTUAL_BIN is no program" >&2; exit 1; }
export PUNCTUAL_BIN

cd "$(dirname "$0")"
# Made again when what it is made of changes.
made_of=$(cat requirements.txt test.sh | sha256sum | cut -c1-16)
if [ "$(cat .venv/made-of 2>/dev/null || true)" != "$made_of" ]; then
  rm -rf .venv
  "${PYTHON:-python3}" -m venv .venv
  .venv/bin/python -m pip install --quiet --requirement requirements.txt
  echo "$made_of" >.venv/made-of
fi
exec .venv/bin/python run.py

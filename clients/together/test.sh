#!/usr/bin/env bash
# Workers in Rust, Python and TypeScript side by side against the server PUNCTUAL_BIN. The Rust one is built with the tests of the workspace, the TypeScript one
# by its own test.sh, which runs before this.
set -euo pipefail

: "${PUNCTUAL_BIN:?set PUNCTUAL_BIN to the punctual binary whose examples are built, too}"
PUNCTUAL_BIN=$(realpath "$PUNCTUAL_BIN")
export PUNCTUAL_BIN
for tool in node "${PYTHON:-python3}"; do
  command -v "$tool" >/dev/null || { echo "$tool is not installed" >&2; exit 1; }
done

cd "$(dirname "$0")"
exec "${PYTHON:-python3}" story.py

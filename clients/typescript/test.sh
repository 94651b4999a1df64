#!/usr/bin/env bash
# Checks the types of the TypeScript client and runs its tests, the last of them against the server PUNCTUAL_BIN.
set -euo pipefail

: "${PUNCTUAL_BIN:?set PUNCTUAL_BIN to the punctual binary that the end-to-end tests start}"
PUNCTUAL_BIN=$(realpath "$PUNCTUAL_BIN")
test -x "$PUNCTUAL_BIN" || { echo "$PUNCTUAL_BIN is no program" >&2; exit 1; }
export PUNCTUAL_BIN

cd "$(dirname "$0")"
# Installed again when what is installed changes.
made_of=$(cat package.json package-lock.json test.sh | sha256sum | cut -c1-16)
if [ "$(cat node_modules/.made-of 2>/dev/null || true)" != "$made_of" ]; then
  npm ci --no-audit --no-fund --silent
  echo "$made_of" >node_modules/.made-of
fi

rm -rf dist build
npx --no-install tsc -p tsconfig.json
npx --no-install tsc -p tsconfig.test.json
report=$(mktemp)
trap 'rm -f "$report"' EXIT
# Files one after the other: several servers at once would wait for each other on a small machine.
node --test --test-concurrency=1 --test-reporter=spec --test-reporter-destination=stdout \
  --test-reporter=tap --test-reporter-destination="$report" build/test/*.test.js
count() { sed -n "s/^# $1 //p" "$report" | tail -n 1; }
test "$(count skipped)" = 0 || { echo "$(count skipped) tests were skipped" >&2; exit 1; }
echo "typescript client: $(count tests) tests"

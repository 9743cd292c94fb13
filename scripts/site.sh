#!/usr/bin/env bash
# Makes a web site of the documentation in DIRECTORY/html. A link that leads nowhere fails it.
#
#	site.sh DIRECTORY
set -euo pipefail
from=$(cd "$(dirname "$0")/.." && pwd)
command -v npm >/dev/null || (apt-get update -q && apt-get install -qy --no-install-recommends nodejs npm)
mkdir -p "$1/.vitepress"
cd "$1"
cp "$from/site/config.mjs" .vitepress/
rm -rf pages && mkdir pages
(cd "$from" && git ls-files README.md SCOPE.md CHANGELOG.md CONTRIBUTING.md docs 'providers/*/README.md') |
	grep -E '^([A-Z]+\.md|docs/.*\.(md|png|svg)|providers/[^/]+/README\.md)$' | tar -C "$from" -c -T - | tar -C pages -x
if ! cmp -s "$from/site/package-lock.json" node_modules/.installed; then
	cp "$from/site/package.json" "$from/site/package-lock.json" .
	npm ci --no-audit --no-fund
	cp package-lock.json node_modules/.installed
fi
VK_REPOSITORY=$from node_modules/.bin/vitepress build

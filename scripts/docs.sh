#!/usr/bin/env bash
# The documentation as a site in site/, with an API reference; a broken link fails. Arguments go to
# mkdocs build; `./scripts/docs.sh serve` shows the site at http://127.0.0.1:8000 while pages change.
set -euo pipefail
. "$(dirname "$0")/environment.sh" docs
export NO_MKDOCS_2_WARNING=1
[ "${1:-}" = serve ] && exec mkdocs "$@"
mkdocs build --quiet "$@"
echo "the site is in site/: python -m http.server -d site, then http://127.0.0.1:8000"

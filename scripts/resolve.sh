#!/bin/sh
# Resolve requirements/image.txt for Python 3.12, or with --check only test that its pins are consistent. Takes uv's path.
set -eu
cd "$(dirname "$0")/.."
resolved=$(mktemp)
trap 'rm -f "$resolved"' EXIT
cp requirements/image.txt "$resolved"
if [ "${2:-}" != --check ]; then # prefer the versions that are pinned elsewhere
    cat requirements/run.txt requirements/vllm.txt >"$resolved"
fi
"$1" pip compile --quiet --python-version 3.12 --python-platform x86_64-manylinux_2_28 --no-python-downloads \
    --no-annotate --no-header --no-emit-index-url --override requirements/overrides.txt \
    --extra worker --extra keywords pyproject.toml requirements/image.in --output-file "$resolved"
if [ "${2:-}" = --check ]; then
    grep -v '^#' requirements/image.txt | diff - "$resolved" && echo "requirements/image.txt is consistent"
else
    {
        echo "# What the GPU image installs without dependencies; \`make pins\` resolves it for Python 3.12."
        cat "$resolved"
    } >requirements/image.txt
fi

#!/bin/sh
# Run the Dockerfile's steps in a plain virtual environment: pins, weights, code, a job. Takes the folder to create.
#
#   scripts/install.sh build/image                                   the cpu image
#   PINS=image MODEL=deepseek_ocr scripts/install.sh build/image     the GPU image: gigabytes, and it needs a GPU
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
pins=${PINS:-run}
mkdir -p "$1"
app=$(cd "$1" && pwd)

python=${PYTHON:-python3.12}
"$python" --version >/dev/null 2>&1 || python=python3
test -x "$app/venv/bin/python" || "$python" -m venv "$app/venv"
pip="$app/venv/bin/python -m pip --disable-pip-version-check install --quiet --no-deps"

mkdir -p "$app/requirements"
cp "$root/requirements/$pins.txt" "$app/requirements/"
$pip -r "$app/requirements/$pins.txt"
if [ -n "${MODEL:-}" ]; then
    PYTHONPATH="$root/src" "$app/venv/bin/python" -m twopass.cli download-weights "$MODEL" "$app/models/$MODEL" \
        --structure "${STRUCTURE:-auto}"
fi
cp "$root/pyproject.toml" "$root/README.md" "$root/LICENSE" "$root/NOTICE" "$root/handler.py" "$app/"
rm -rf "$app/src" "$app/scripts" "$app/samples"
cp -r "$root/src" "$root/scripts" "$root/samples" "$app/"
rm -rf "$app"/src/*.egg-info
cd "$app"
$pip --no-build-isolation .
venv/bin/python scripts/bytecode.py

if [ -n "${MODEL:-}" ]; then
    export ENGINE=vllm MODEL STRUCTURE="${STRUCTURE:-auto}" MODEL_DIR="$app/models/$MODEL"
    venv/bin/twopass download-weights "$MODEL" "$MODEL_DIR" --structure "$STRUCTURE" --verify
    export DETECTOR_DIR="$app/models/pp_doclayout_v3"
fi
export HF_HUB_OFFLINE=1 TRANSFORMERS_OFFLINE=1 RUNPOD_LOG_LEVEL=INFO
exec venv/bin/python handler.py --test_input \
    '{"input": {"source": "samples/sample.pdf", "pages": "1-2", "output": "output"}}'

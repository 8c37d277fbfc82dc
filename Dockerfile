# syntax=docker/dockerfile:1
# The worker's images. Layers that change least come first (vLLM, packages, weights, code), so that a code change is small.
#
#   docker build -t twopass .                                       gpu-baked: DeepSeek-OCR on vLLM, weights in the image
#   docker build -t twopass --build-arg MODEL=unlimited_ocr .       another model: see docs/models.md
#   docker build -t twopass --build-arg MODEL=glm_ocr .             a model that reads regions, with the layout detector
#   docker build -t twopass --build-arg STRUCTURE=fallback .        DeepSeek-OCR with the layout detector
#   docker build -t twopass --target gpu .                          no weights: RunPod's cached model or a volume has them
#   docker build -t twopass-cpu --target cpu .                      the cpu engine: no GPU, no weights
#   docker build -t twopass --build-arg OFFICE=1 .                  with LibreOffice, for office files: 500 MB more
#
# With --secret id=HF_TOKEN the weights are downloaded with that token; it is in no layer.
ARG VLLM_VERSION=0.33.0

# The weights at their pinned revisions (src/twopass/models.py), every file verified with the hub's checksums. This
# stage has only what the download needs, and all timestamps are reset, so that the layer is the same when it is built again.
FROM python:3.12.12-slim-bookworm AS weights
# MODEL also selects the family: prompts and parser. STRUCTURE decides whether the layout detector is in the image.
ARG MODEL=deepseek_ocr
ARG STRUCTURE=auto
RUN pip install --no-cache-dir huggingface_hub==2.4.0
COPY src/twopass/__init__.py src/twopass/errors.py src/twopass/models.py src/twopass/version.py /bake/twopass/
COPY src/twopass/engines/__init__.py src/twopass/engines/hub.py /bake/twopass/engines/
COPY src/twopass/runtime/__init__.py src/twopass/runtime/vendor_reports.py /bake/twopass/runtime/
WORKDIR /bake
ENV HF_XET_HIGH_PERFORMANCE=1
RUN --mount=type=secret,id=HF_TOKEN,env=HF_TOKEN,required=false \
    python -c "import sys, pathlib; from twopass import models; from twopass.engines import hub; \
      [hub.download(one.repo, one.revision, pathlib.Path(sys.argv[3], name)) \
      for name, one in models.list_weights(*sys.argv[1:3]).items()]" "$MODEL" "$STRUCTURE" /models \
    && find /models -exec touch --no-dereference --date=@0 {} +

# The image with the cpu engine, for a laptop, CI or a CPU endpoint.
FROM python:3.12.12-slim-bookworm AS cpu
# The licences are those of twopass and of PyMuPDF, which Artifex also licenses commercially: see THIRD_PARTY.md.
LABEL org.opencontainers.image.title="twopass" \
      org.opencontainers.image.description="Reads PDFs and page images into DocJSON and markdown, without a GPU" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0 AND AGPL-3.0-only"
COPY requirements/run.txt /app/requirements/
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends \
    tesseract-ocr-kor tesseract-ocr-rus tesseract-ocr-ara tesseract-ocr-eng && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir --no-deps -r /app/requirements/run.txt
# Office files: LibreOffice, with fonts that have the widths of Microsoft's; without them, lines end elsewhere.
# 167 packages, 502 MB: the sum of Installed-Size of what `apt-get install --simulate` adds to Debian 12's slim base.
ARG OFFICE=0
# hadolint ignore=DL3008
RUN if [ "$OFFICE" = 1 ]; then apt-get update && apt-get install -y --no-install-recommends \
    libreoffice-writer libreoffice-calc libreoffice-impress libreoffice-math \
    fonts-liberation fonts-crosextra-carlito fonts-crosextra-caladea && rm -rf /var/lib/apt/lists/*; fi
WORKDIR /app
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
COPY handler.py ./
COPY scripts ./scripts
COPY samples ./samples
ENV ENGINE=cpu \
    METRICS_PORT=9400 \
    PYTHONUNBUFFERED=1 \
    OUTPUT_DIR=/output \
    SERVE_DIR=/served
# Who mounts a folder that another user owns, such as RunPod's volume on a CPU endpoint, starts with --user.
RUN useradd --uid 1000 --create-home twopass && install --directory --owner=twopass /output /served
USER 1000
HEALTHCHECK --interval=30s --timeout=15s --start-period=5m CMD ["twopass", "health"]
ENTRYPOINT ["python3", "/app/handler.py"]

# What both images for GPUs begin with; CUDA, PyTorch and Python 3.12 come from vLLM's image.
FROM vllm/vllm-openai:v${VLLM_VERSION} AS packages
LABEL org.opencontainers.image.title="twopass" \
      org.opencontainers.image.description="Reads PDFs and scans with OCR models on vLLM, as a RunPod serverless worker" \
      org.opencontainers.image.version="0.2.0" \
      org.opencontainers.image.licenses="Apache-2.0 AND AGPL-3.0-only"
RUN --mount=type=bind,source=requirements,target=/requirements \
    --mount=type=bind,source=scripts/bytecode.py,target=/bytecode.py \
    python3 -m pip install --no-cache-dir --no-deps -r /requirements/image.txt \
    && python3 /bytecode.py # that of vLLM's image is missing; see the script
# Office files: LibreOffice, with fonts that have the widths of Microsoft's; without them, lines end elsewhere.
ARG OFFICE=0
# hadolint ignore=DL3008
RUN if [ "$OFFICE" = 1 ]; then apt-get update && apt-get install -y --no-install-recommends \
    libreoffice-writer libreoffice-calc libreoffice-impress libreoffice-math \
    fonts-liberation fonts-crosextra-carlito fonts-crosextra-caladea && rm -rf /var/lib/apt/lists/*; fi
# Kernels that vLLM compiled before, if there are any: see caches/README.md.
COPY caches /caches
WORKDIR /app
ENV ENGINE=vllm \
    METRICS_PORT=9400 \
    ENGINE_CACHE=/caches \
    HF_HUB_OFFLINE=1 \
    TRANSFORMERS_OFFLINE=1 \
    PYTHONUNBUFFERED=1 \
    RUNPOD_LOG_CAPTURE=off
# It runs as root, as vLLM's image does: RunPod mounts /runpod-volume, with cached models, downloaded weights, compiled
# kernels and outputs, and nothing says that another user may write there.
HEALTHCHECK --interval=30s --timeout=15s --start-period=15m CMD ["twopass", "health"]
# Python must be process 1, which gets the platform's SIGTERM: a shell would not pass it on.
ENTRYPOINT ["python3", "/app/handler.py"]

# The image without weights: MODEL_DIR, RunPod's cached model or the network volume has them, or ALLOW_DOWNLOAD fetches them.
FROM packages AS gpu
# The Triton kernels of vLLM that a GPU was seen to use, compiled without one: for A100, RTX 3090, L4 and RTX 4090, H100 and
# H200, B200. The installation of the code adds its own.
RUN --mount=type=bind,source=src/twopass/engines/vllm/kernels.py,target=/record/kernels.py \
    --mount=type=bind,source=src/twopass/engines/vllm/kernels.jsonl,target=/record/kernels.jsonl \
    TRITON_CACHE_DIR=/caches/all/triton python3 /record/kernels.py 80 86 89 90 100
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN python3 -m pip install --no-cache-dir --no-deps --no-build-isolation . \
    && twopass warm-up --kernels 80,86,89,90,100
COPY handler.py ./
COPY scripts ./scripts
COPY samples ./samples

# The image with weights, which is the default.
FROM packages AS gpu-baked
# Not below /runpod-volume, where a mounted volume would hide them. The code is copied again, above the weights: if this
# stage began with the one above, every change of the code would send the weights again.
COPY --from=weights /models /models
RUN --mount=type=bind,source=src/twopass/engines/vllm/kernels.py,target=/record/kernels.py \
    --mount=type=bind,source=src/twopass/engines/vllm/kernels.jsonl,target=/record/kernels.jsonl \
    TRITON_CACHE_DIR=/caches/all/triton python3 /record/kernels.py 80 86 89 90 100
COPY pyproject.toml README.md LICENSE NOTICE ./
COPY src ./src
RUN python3 -m pip install --no-cache-dir --no-deps --no-build-isolation . \
    && twopass warm-up --kernels 80,86,89,90,100
COPY handler.py ./
COPY scripts ./scripts
COPY samples ./samples
ARG MODEL=deepseek_ocr
ARG STRUCTURE=auto
RUN twopass download-weights "$MODEL" "/models/$MODEL" --structure "$STRUCTURE" --verify
ENV MODEL=${MODEL} \
    STRUCTURE=${STRUCTURE}

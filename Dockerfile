# syntax=docker/dockerfile:1
# The worker's image. Layers that change least come first (vLLM, packages, weights, code), so that a code change is small.
#
#   docker build -t twopass .                                       DeepSeek-OCR on vLLM, for a GPU
#   docker build -t twopass --build-arg MODEL=deepseek_ocr2 \
#     --build-arg MODEL_REPO=deepseek-ai/DeepSeek-OCR-2 \
#     --build-arg MODEL_REVISION=aaa02f3811945a91062062994c5c4a3f4c0af2b0 .
#   docker build -t twopass --build-arg MODEL=unlimited_ocr \
#     --build-arg MODEL_REPO=baidu/Unlimited-OCR \
#     --build-arg MODEL_REVISION=84757cb04b4d9b74adc65dc31cdf52fca7dc2a97 .
#   docker build -t twopass-cpu --target cpu .                      the cpu engine: no GPU, no weights
ARG VLLM_VERSION=0.26.0

# The weights at their pinned revision, every file verified with the hub's checksums. This stage has only what the download
# needs, and all timestamps are reset, so that the layer is the same when it is built again.
FROM python:3.12.12-slim-bookworm AS weights
# MODEL also selects the family: prompts and parser. src/twopass/engines/weights.py has the pinned revisions.
ARG MODEL=deepseek_ocr
ARG MODEL_REPO=deepseek-ai/DeepSeek-OCR
ARG MODEL_REVISION=9f30c71f441d010e5429c532364a86705536c53a
RUN pip install --no-cache-dir huggingface_hub==2.4.0
COPY src/twopass/__init__.py src/twopass/errors.py /bake/twopass/
COPY src/twopass/engines/__init__.py src/twopass/engines/hub.py /bake/twopass/engines/
WORKDIR /bake
ENV HF_XET_HIGH_PERFORMANCE=1
RUN python -c "import sys, pathlib; from twopass.engines import hub; hub.download(*sys.argv[1:3], pathlib.Path(sys.argv[3]))" \
      "$MODEL_REPO" "$MODEL_REVISION" "/models/$MODEL" \
    && find /models -exec touch --no-dereference --date=@0 {} +

# The image with the cpu engine, for a laptop, CI or a CPU endpoint.
FROM python:3.12.12-slim-bookworm AS cpu
COPY requirements/run.txt /app/requirements/
RUN pip install --no-cache-dir --no-deps -r /app/requirements/run.txt
WORKDIR /app
COPY pyproject.toml LICENSE NOTICE ./
COPY src ./src
RUN pip install --no-cache-dir --no-deps --no-build-isolation .
COPY handler.py ./
COPY scripts ./scripts
COPY samples ./samples
ENV ENGINE=cpu \
    PYTHONUNBUFFERED=1 \
    RUNPOD_LOG_LEVEL=INFO \
    OUTPUT_DIR=/output
ENTRYPOINT ["python3", "/app/handler.py"]

# The image for GPUs; CUDA, PyTorch and Python 3.12 come from vLLM's image.
FROM vllm/vllm-openai:v${VLLM_VERSION} AS gpu
RUN --mount=type=bind,source=requirements,target=/requirements \
    python3 -m pip install --no-cache-dir --no-deps -r /requirements/image.txt
# Not below /runpod-volume, where a mounted volume would hide them.
COPY --from=weights /models /models
# Kernels that vLLM compiled before, if there are any: see caches/README.md.
COPY caches /caches
WORKDIR /app
COPY pyproject.toml LICENSE NOTICE ./
COPY src ./src
RUN python3 -m pip install --no-cache-dir --no-deps --no-build-isolation .
COPY handler.py ./
COPY scripts ./scripts
COPY samples ./samples
ARG MODEL=deepseek_ocr
RUN twopass download-weights "$MODEL" "/models/$MODEL" --verify
ENV ENGINE=vllm \
    MODEL=${MODEL} \
    ENGINE_CACHE=/caches \
    HF_HUB_OFFLINE=1 \
    TRANSFORMERS_OFFLINE=1 \
    VLLM_NO_USAGE_STATS=1 \
    PYTHONUNBUFFERED=1 \
    RUNPOD_LOG_LEVEL=INFO
# Python must be process 1: below a shell, the SDK's heartbeat would outlive a dead worker and keep reporting its jobs.
ENTRYPOINT ["python3", "/app/handler.py"]

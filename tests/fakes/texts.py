"""One paragraph of prose in each of three languages."""

from __future__ import annotations

ENGLISH = (
    "Large language models have become the dominant approach for document understanding. The vision encoder compresses "
    "a page image into a few hundred tokens, and the decoder reads these tokens to produce markdown. We measure "
    "throughput in pages per second on one GPU. Image preparation takes most of the time. Page workers prepare images."
)
KOREAN = (
    "대규모 언어 모델은 문서 이해를 위한 주요 접근 방식이 되었다. "
    "비전 인코더는 페이지 이미지를 수백 개의 토큰으로 압축하고, 디코더는 이 토큰을 읽는다."
)
CHINESE = "大型语言模型已成为文档理解的主要方法。视觉编码器将页面图像压缩为数百个标记，解码器读取这些标记。"

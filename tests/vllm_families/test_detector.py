"""PP-DocLayoutV3 in Transformers with small random weights: its input, its outputs and their decoding.

Takes fifteen seconds on two cores. The detector's post-processing must equal that of Transformers.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PPDocLayoutV3ForObjectDetection, PPDocLayoutV3ImageProcessor

from tests.vllm_families import tiny_detector
from tests.vllm_families.tiny_detector import QUERIES
from twopass.detection import region
from twopass.engines.detector import decode, model
from twopass.engines.detector.decode import RawPage
from twopass.engines.detector.process import ChildDetector, DetectorOptions
from twopass.errors import Code, EngineError, WorkerDied
from twopass.pages.shared_pixels import PixelBufferPool, Pixels
from twopass.runtime.page_pool import PagePool

pytestmark = pytest.mark.filterwarnings("default")  # torch emits warnings that we cannot fix

THRESHOLD = 0.3
MASK_SIDE = 200


def draw_page(width: int, height: int, seed: int) -> Pixels:
    """Coarse coloured squares, different for each seed."""
    squares = np.random.default_rng(seed).integers(0, 256, (-(-height // 16), -(-width // 16), 3), dtype=np.uint8)
    return Pixels(width, height, data=squares.repeat(16, 0).repeat(16, 1)[:height, :width].tobytes())


PAGES = [draw_page(595, 842, 1), draw_page(1190, 842, 2), draw_page(400, 1600, 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_detector.write_checkpoint(tmp_path_factory.mktemp("detector"))


@pytest.fixture(scope="module")
def detector(folder: Path) -> Any:
    return PPDocLayoutV3ForObjectDetection.from_pretrained(folder)


def processor() -> PPDocLayoutV3ImageProcessor:
    return PPDocLayoutV3ImageProcessor()


def compare(outputs: Any, raw: list[RawPage], sizes: list[tuple[int, int]]) -> int:
    """Compare our decoding with Transformers' for each page; returns the number of candidates."""
    expected = processor().post_process_object_detection(
        outputs, THRESHOLD, torch.tensor([(height, width) for width, height in sizes])
    )
    count = 0
    for page, (width, height), wanted in zip(raw, sizes, expected, strict=True):
        found = decode.pick(page, THRESHOLD)
        corners = decode.to_corners(page.boxes[found.queries])
        traced = decode.trace_polygons(corners, page.read_masks(found.queries), width, height)
        ours = sorted(
            zip(found.orders.tolist(), found.labels.tolist(), found.scores, corners, traced, strict=True),
            key=lambda row: row[:2],
        )
        theirs = sorted(
            zip(
                wanted["order_seq"].tolist(),
                wanted["labels"].tolist(),
                wanted["scores"].numpy(),
                wanted["boxes"].numpy() / (width, height, width, height),
                wanted["polygon_points"],
                strict=True,
            ),
            key=lambda row: row[:2],
        )
        assert [row[:2] for row in ours] == [row[:2] for row in theirs]
        for one, other in zip(ours, theirs, strict=True):
            assert one[2] == pytest.approx(other[2], abs=1e-6)
            assert one[3] == pytest.approx(other[3], abs=1e-5)
            if other[4] is None or len(other[4]) == 0:
                assert one[4] is None or len(one[4]) == 0
            else:
                assert one[4] == pytest.approx(np.array(other[4]), abs=1e-6)
        count += len(ours)
    return count


def draw_outputs(seed: int, pages: int, blobs: bool) -> Any:
    """Random raw outputs; masks of noise, or of a rotated ellipse each."""
    noise = np.random.default_rng(seed)
    masks = noise.normal(0, 3, (pages, QUERIES, MASK_SIDE, MASK_SIDE)).astype(np.float32)
    if blobs:
        y, x = np.mgrid[:MASK_SIDE, :MASK_SIDE] / MASK_SIDE
        for mask in masks.reshape(-1, MASK_SIDE, MASK_SIDE):
            a, b, c = noise.uniform(0.2, 0.8), noise.uniform(0.2, 0.8), noise.uniform(-1, 1)
            mask[:] = 5 - 40 * ((x - a) ** 2 + (y - b) ** 2 + c * (x - a) * (y - b))
    centres, sizes = noise.uniform(0.1, 0.9, (pages, QUERIES, 2)), noise.uniform(0, 0.5, (pages, QUERIES, 2))
    return SimpleNamespace(
        logits=torch.from_numpy(noise.normal(-3, 2, (pages, QUERIES, 25)).astype(np.float32)),
        pred_boxes=torch.from_numpy(np.concatenate([centres, sizes], 2).astype(np.float32)),
        order_logits=torch.from_numpy(noise.normal(0, 4, (pages, QUERIES, QUERIES)).astype(np.float32)),
        out_masks=torch.from_numpy(masks),
    )


def to_raw(outputs: Any) -> list[RawPage]:
    def read(page: int) -> Any:
        return lambda queries: (outputs.out_masks[page][queries].float().sigmoid() > THRESHOLD).numpy().astype("uint8")

    return [
        RawPage(
            outputs.logits[page].float().numpy(),
            outputs.pred_boxes[page].float().numpy(),
            outputs.order_logits[page].float().numpy(),
            read(page),
        )
        for page in range(len(outputs.logits))
    ]


@pytest.mark.parametrize("blobs", [False, True], ids=["noise", "ellipses"])
@pytest.mark.parametrize("seed", range(3))
def test_decoding_equals_that_of_transformers_on_random_outputs(seed: int, blobs: bool) -> None:
    """Labels, order, scores, boxes and polygons are the same."""
    sizes = [(595, 842), (1190, 842)]
    outputs = draw_outputs(seed, len(sizes), blobs)

    assert compare(outputs, to_raw(outputs), sizes) > 40


def test_decoding_equals_that_of_transformers_on_outputs_of_the_model(detector: Any) -> None:
    """The same for the real class, with what it computes from three pages of different sizes."""
    ours = model.DetectorModel(detector, "cpu", torch.float32, THRESHOLD)
    with torch.inference_mode():
        outputs = detector(pixel_values=model.prepare(PAGES, "cpu", torch.float32))

    assert compare(outputs, ours.run(PAGES), [(page.width, page.height) for page in PAGES]) > 0


def test_the_input_equals_that_of_the_image_processor() -> None:
    """Pages of different sizes become the same numbers."""
    expected = processor()(images=[page.array().copy() for page in PAGES], return_tensors="pt")["pixel_values"]

    assert torch.allclose(model.prepare(PAGES, "cpu", torch.float32), expected, atol=1e-6)


def test_outputs_of_a_model_in_bfloat16_can_be_decoded(detector: Any) -> None:
    """Everything is raised to float32 before it is decoded."""
    ours = model.DetectorModel(detector, "cpu", torch.bfloat16, THRESHOLD)
    try:
        raw = ours.run(PAGES)
        texts = [decode.write_answer(page, pixels) for page, pixels in zip(raw, PAGES, strict=True)]
    finally:
        detector.float()

    assert all(page.logits.dtype == page.order_logits.dtype == np.float32 for page in raw)
    assert sum(len(region.parse(text).regions) for text in texts) > 0


def test_a_page_alone_gives_the_detection_of_its_batch(detector: Any) -> None:
    """What else is in a batch does not change a page."""
    ours = model.DetectorModel(detector, "cpu", torch.float32, THRESHOLD)

    together = ours.run(PAGES)
    alone = [ours.run([page])[0] for page in PAGES]

    for one, other in zip(together, alone, strict=True):
        assert np.allclose(one.logits, other.logits, atol=1e-3)
        assert np.allclose(one.boxes, other.boxes, atol=1e-3)


async def test_a_child_process_detects_on_shared_pixels(folder: Path) -> None:
    """The child loads the weights, maps the buffers and answers with JSON, equal to that of this process."""
    page = PAGES[0]
    buffers = PixelBufferPool(1, 1 << 24)
    pool = PagePool(0, buffers)
    child = ChildDetector(DetectorOptions(folder))
    async with buffers.lend(page.width * page.height * 3) as buffer:
        memory = buffer.map(page.width * page.height * 3)
        memory[:] = page.array().tobytes()
        await child.open(pool)
        [text] = await child.detect([Pixels(page.width, page.height, buffer)])
        await child.close()
    buffers.close()

    [raw] = model.load(folder, "cpu", "float32").run([page])
    assert region.parse(text).regions
    assert len(region.parse(text).regions) == len(region.parse(decode.write_answer(raw, page)).regions)


@pytest.mark.parametrize(
    ("folder_name", "device", "advice"),
    [("empty", "cpu", "correct DETECTOR_DIR or download it again"), ("", "cuda", "set DETECTOR_DEVICE=cpu")],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
async def test_a_detector_that_cannot_start_says_what_to_change(
    folder: Path, tmp_path: Path, folder_name: str, device: str, advice: str
) -> None:
    """Damaged weights and a GPU that PyTorch does not see are errors with a code, sent from the child."""
    (tmp_path / "empty").mkdir()
    place = tmp_path / folder_name if folder_name else folder
    buffers = PixelBufferPool(1, 1 << 22)
    detector = ChildDetector(DetectorOptions(place, device))

    with pytest.raises(EngineError, match=advice) as caught:
        await detector.open(PagePool(0, buffers))
    await detector.close()
    buffers.close()

    assert caught.value.code is Code.ENGINE_DEAD


async def test_a_detector_without_numbers_does_not_start(folder: Path, tmp_path: Path) -> None:
    """Weights that turn a blank page into no numbers end the start, and not the first job's pages."""
    damaged = PPDocLayoutV3ForObjectDetection.from_pretrained(folder)
    for weight in damaged.parameters():
        weight.data.fill_(float("nan"))
    damaged.save_pretrained(tmp_path)
    buffers = PixelBufferPool(1, 1 << 22)
    detector = ChildDetector(DetectorOptions(tmp_path))

    with pytest.raises(EngineError, match="gives no numbers") as caught:
        await detector.open(PagePool(0, buffers))
    await detector.close()
    buffers.close()

    assert caught.value.code is Code.ENGINE_DEAD


class FullModel:
    """A model for which the GPU's memory is too small if it gets more than one page."""

    def to(self, **kwargs: object) -> FullModel:
        return self

    def eval(self) -> FullModel:
        return self

    def __call__(self, pixel_values: torch.Tensor) -> object:
        if len(pixel_values) > 1:
            raise torch.OutOfMemoryError("2 GiB")
        queries = torch.zeros(1, 1, 1)
        boxes, masks = torch.zeros(1, 1, 4), torch.zeros(1, 1, 2, 2)
        return SimpleNamespace(logits=queries, pred_boxes=boxes, order_logits=queries, out_masks=masks)


def test_a_batch_that_is_too_large_ends_without_a_crash() -> None:
    """The child goes on, and its pages can be detected one by one."""
    full = model.DetectorModel(FullModel(), "cpu", torch.float32)

    with pytest.raises(WorkerDied, match="too little GPU memory for 3 pages: lower GPU_MEMORY_UTILIZATION"):
        full.run(PAGES)
    assert len(full.run(PAGES[:1])) == 1

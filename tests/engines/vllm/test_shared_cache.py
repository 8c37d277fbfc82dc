"""Compiled code in a bucket, over real HTTP: made once, fetched by others, and never a reason for a failed start."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import resource
import shutil
import socket
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from backports import zstd

from tests.fakes import s3
from twopass.engines.gpus import GpuInfo
from twopass.engines.vllm import shared_cache, startup
from twopass.engines.vllm.arguments import build_arguments, choose_preset
from twopass.engines.vllm.shared_cache import DamagedObject, Place, SharedCache, State
from twopass.settings import Settings

KEY = "a secret of the endpoint"
MODEL = "vllm/torch_compile_cache/hash/model"
KERNEL = "triton/KERNEL/kernel.cubin"
NAME = "H200-hash.tar.zst"
ENOUGH_S = 120.0  # on a machine that is busy


def settings(endpoint: str | None, key: str | None = None, **more: Any) -> Settings:
    fields = {"engine_cache": "s3://bucket/caches/", "engine_cache_key": key, "store_patience_s": 0.0, **more}
    return s3.settings(endpoint, **fields)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(NAME, tmp_path / "gpu" / "vllm", tmp_path / "all" / "triton")


def compile_code(place: Place, text: str = "compiled") -> None:
    for name in (MODEL, KERNEL):
        top, _, rest = name.partition("/")
        file = getattr(place, top) / rest
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def forget(place: Place) -> None:
    """Leave the machine as one that has never started an engine."""
    for folder in (place.vllm, place.triton):
        shutil.rmtree(folder, ignore_errors=True)


def read_code(place: Place) -> list[str]:
    files = (place.vllm / MODEL.partition("/")[2], place.triton / KERNEL.partition("/")[2])
    return [file.read_text() for file in files if file.exists()]


def share(settings: Settings, place: Place, state: State = State.MISSING, is_complete: bool = False) -> None:
    """Store what is compiled, as a worker does whose fetch ended so."""
    asyncio.run(open_cache(settings, place, state).share(is_complete))


def fetch(settings: Settings, place: Place) -> tuple[State, str]:
    """Fetch in this process, which is sooner than in another."""
    place.vllm.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.vllm.parent) as folder:
        return shared_cache.fetch(settings, place, Path(folder))


def open_cache(settings: Settings, place: Place, state: State) -> SharedCache:
    cache = SharedCache(settings, place)
    cache.abandon()
    cache.state = state
    return cache


def test_a_later_worker_gets_what_the_first_one_compiled(endpoint: str, bucket: Any, place: Place) -> None:
    """It is fetched in a process beside the imports, and the next start on that machine asks the bucket nothing."""
    compile_code(place)
    proxy = s3.Proxy(endpoint)
    share(settings(endpoint), place)
    forget(place)

    with proxy.serve() as url:
        fetched = SharedCache(settings(url), place, limits_s=(ENOUGH_S, ENOUGH_S))
        assert fetched.wait() is fetched.wait() is State.FETCHED
        requests = len(proxy.requests)
        assert SharedCache(settings(url), place).wait() is State.KEPT

    assert read_code(place) == ["compiled", "compiled"]
    assert requests == len(proxy.requests) == 1
    assert list(s3.read_objects(bucket)) == [f"caches/{NAME}"]


def test_a_worker_that_finds_nothing_starts_without(endpoint: str, bucket: Any, place: Place) -> None:
    """A missing object is the usual case at the first start, and so is a missing bucket."""
    assert fetch(settings(endpoint), place)[0] is State.MISSING
    assert fetch(settings(endpoint, engine_cache="s3://other/caches"), place)[0] is State.MISSING


async def test_two_workers_at_once_store_one_object(endpoint: str, bucket: Any, tmp_path: Path) -> None:
    """The store decides who was first; the other one's object is not written, and neither fails."""
    places = [Place(NAME, tmp_path / name / "vllm", tmp_path / name / "triton") for name in "ab"]
    for place, text in zip(places, ("first", "second"), strict=True):
        compile_code(place, text)

    await asyncio.gather(*(open_cache(settings(endpoint), place, State.MISSING).share() for place in places))
    (stored,) = s3.read_objects(bucket).values()
    (tmp_path / "object").write_bytes(stored)
    shared_cache.unpack(tmp_path / "object", places[0], None, tmp_path / "unpacked")

    assert (tmp_path / "unpacked" / MODEL).read_text() in ("first", "second")
    assert all(place.marker.exists() for place in places)


def test_what_was_fetched_is_not_stored_again(endpoint: str, bucket: Any, place: Place) -> None:
    """Otherwise each start would send 5 MB; `twopass warm-up` does, because it has compiled more."""
    compile_code(place)
    share(settings(endpoint), place, State.FETCHED)
    assert s3.read_objects(bucket) == {}

    share(settings(endpoint), place)
    before = s3.read_objects(bucket)
    compile_code(place, "more")
    share(settings(endpoint), place)
    assert s3.read_objects(bucket) == before

    share(settings(endpoint), place, State.FETCHED, is_complete=True)
    assert s3.read_objects(bucket) != before


def test_more_than_a_worker_would_fetch_is_not_stored(
    endpoint: str, bucket: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every start would try it in vain, and the object would never be replaced. This machine keeps what it has."""
    monkeypatch.setattr(shared_cache, "_MAX_BYTES", 100)
    compile_code(place)

    share(settings(endpoint), place)

    assert s3.read_objects(bucket) == {}
    assert place.marker.exists()


FRAME = b"\x28\xb5\x2f\xfd"  # begins Zstandard's own frame, after that with the checksum
DAMAGE = {
    "other code": lambda data: data[: data.index(FRAME)] + zstd.compress(build_archive(member(MODEL, size=3))),
    "a changed byte": lambda data: data[:-20] + bytes([data[-20] ^ 1]) + data[-19:],
    "half of it": lambda data: data[: len(data) // 2],
    "no checksum": lambda data: data[data.index(FRAME) :],
    "nothing": lambda data: b"",
    "a document": lambda data: b"%PDF-1.7",
    "a larger head": lambda data: data[:4] + b"\xff\xff\xff\xff" + data[8:],
    "brackets": lambda data: build_object(b"[" * shared_cache._MAX_HEAD, b""),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_object_is_refused_and_replaced(damage: str, endpoint: str, bucket: Any, place: Place) -> None:
    """Nothing of it is unpacked; the worker compiles, and the next one finds what that has compiled."""
    compile_code(place)
    share(settings(endpoint), place)
    (key, data), *_ = s3.read_objects(bucket).items()
    bucket.put_object(Bucket="bucket", Key=key, Body=DAMAGE[damage](data))
    forget(place)

    state, reason = fetch(settings(endpoint), place)
    assert (state, bool(reason), read_code(place)) == (State.REFUSED, True, [])

    compile_code(place)
    share(settings(endpoint), place, state)
    forget(place)
    assert fetch(settings(endpoint), place)[0] is State.FETCHED


@pytest.mark.parametrize("signature", ["é", "\ud800", None, 0])
def test_a_signature_of_any_kind_is_refused(signature: Any, place: Place, tmp_path: Path) -> None:
    """Refused, and not an error of the program: only an object that was refused is replaced."""
    head = json.dumps({"sha256": hashlib.sha256(b"").hexdigest(), "hmac": signature}, ensure_ascii=signature != "é")
    (tmp_path / "object").write_bytes(build_object(head.encode(), b""))

    with pytest.raises(DamagedObject):
        shared_cache.unpack(tmp_path / "object", place, KEY.encode(), tmp_path / "unpacked")


@pytest.mark.parametrize("signed_with", [None, "another secret of somebody"])
def test_an_object_that_is_not_signed_with_the_key_is_refused(
    signed_with: str | None, endpoint: str, bucket: Any, place: Place
) -> None:
    """Who may write the bucket cannot run code on workers that have a key."""
    compile_code(place)
    share(settings(endpoint, signed_with), place)
    forget(place)

    assert fetch(settings(endpoint, KEY), place) == (
        State.REFUSED,
        "it is not signed with ENGINE_CACHE_KEY",
    )
    assert read_code(place) == []


def test_a_signed_object_has_no_effect_under_another_name(endpoint: str, bucket: Any, place: Place) -> None:
    """An older object, or one of another model, cannot be put in the place of the current one."""
    compile_code(place)
    share(settings(endpoint, KEY), place)
    assert fetch(settings(endpoint, KEY), place)[0] is State.FETCHED
    bucket.copy_object(Bucket="bucket", Key="caches/other", CopySource=f"bucket/caches/{NAME}")

    other = Place("other", place.vllm, place.triton)
    assert fetch(settings(endpoint, KEY), other)[0] is State.REFUSED


def build_archive(*members: tarfile.TarInfo) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(bytes(member.size)))
    return archive.getvalue()


def pack_members(*members: tarfile.TarInfo) -> bytes:
    """An object with a right checksum whose archive has these members."""
    return pack_archive(build_archive(*members))


def pack_archive(archive: bytes) -> bytes:
    payload = zstd.compress(archive)
    return build_object(json.dumps({"sha256": hashlib.sha256(payload).hexdigest(), "hmac": ""}).encode(), payload)


def build_object(head: bytes, payload: bytes) -> bytes:
    return shared_cache._FRAME_HEAD.pack(shared_cache._SKIPPED_FRAME, len(head)) + head + payload


def member(name: str, kind: bytes = tarfile.REGTYPE, size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, size, "/etc/passwd"
    return info


@pytest.mark.parametrize(
    "unsafe",
    [
        *(
            member(name)
            for name in (
                "vllm/../../outside",
                "/etc/outside",
                "other/file",
                "..",
                "triton/a/../../b",
                "vllm",
                "triton/",
            )
        ),
        *(member("vllm/link", kind) for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)),
    ],
    ids=lambda info: f"{info.name}-{info.type!r}",
)
def test_an_archive_leads_nowhere(unsafe: tarfile.TarInfo, place: Place, tmp_path: Path) -> None:
    """Files of two folders are unpacked; a link, a device or a path that leads elsewhere ends it."""
    file = tmp_path / "object"
    file.write_bytes(pack_members(member("vllm/good", size=1), unsafe))

    with pytest.raises(DamagedObject, match="it contains"):
        shared_cache.unpack(file, place, None, tmp_path / "unpacked")
    assert {found.name for found in tmp_path.rglob("*") if found.is_file()} == {"object", "good"}


def test_an_archive_with_a_name_that_no_file_can_have_is_refused(place: Place, tmp_path: Path) -> None:
    """It is no reason to keep the object."""
    named = member("vllm/x")
    named.pax_headers = {"path": "vllm/a\0b"}
    (tmp_path / "object").write_bytes(pack_members(named))

    with pytest.raises(DamagedObject, match="ValueError"):
        shared_cache.unpack(tmp_path / "object", place, None, tmp_path / "unpacked")


def test_an_archive_that_would_fill_the_disk_is_refused(place: Place, tmp_path: Path) -> None:
    """A few kilobytes may unpack to gigabytes; the sizes in the archive are summed before they are written."""
    huge = member("vllm/huge")
    huge.size = shared_cache._MAX_UNPACKED + 1
    file = tmp_path / "object"
    file.write_bytes(pack_archive(huge.tobuf() + bytes(2048)))

    with pytest.raises(DamagedObject, match="too large"):
        shared_cache.unpack(file, place, None, tmp_path / "unpacked")


def test_a_store_that_denies_costs_nothing_but_the_cache(endpoint: str, bucket: Any, place: Place) -> None:
    """Without permission nothing is fetched and nothing is stored, and no error reaches the worker."""
    compile_code(place)
    proxy = s3.Proxy(endpoint)
    proxy.choose_fault = lambda request: s3.Fault(request.method, 403, "AccessDenied")

    with proxy.serve() as url:
        state, reason = fetch(settings(url), place)
        share(settings(url), place)

    assert state is State.FAILED and "access denied" in reason
    assert {request.method for request in proxy.requests} == {"GET", "PUT"}
    assert s3.read_objects(bucket) == {} and not place.marker.exists()


def give_up(cache: SharedCache) -> None:
    assert cache.wait() is State.FAILED


@pytest.mark.parametrize("end", [give_up, SharedCache.abandon])
def test_a_fetch_that_is_ended_leaves_nothing_behind(end: Callable[[SharedCache], None], place: Place) -> None:
    """Neither a start without time nor one that failed waits for a store that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(ENOUGH_S)
        cache = SharedCache(settings(f"http://127.0.0.1:{silent.getsockname()[1]}"), place, limits_s=(0.0, 0.01))
        assert cache._fetching
        process = cache._fetching._process
        connection, _ = silent.accept()
        assert list(place.vllm.parent.iterdir())

        with connection:
            end(cache)

    assert process.returncode == -9
    assert list(place.vllm.parent.iterdir()) == []


def test_a_folder_that_cannot_be_looked_into_fails_no_start(place: Place) -> None:
    """A name that is too long stands for one without permission, which root has everywhere."""
    cache = SharedCache(settings("http://127.0.0.1:9"), Place("x" * 300, place.vllm, place.triton))

    assert cache.wait() is State.FAILED
    assert cache.lacks == ("shared_code_failed",)


@contextmanager
def limit_files(size: int) -> Iterator[None]:
    """Let no file grow beyond this size: for a program, that looks like a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("room", [100, 4000])
def test_a_full_disk_leaves_nothing_behind(room: int, endpoint: str, bucket: Any, place: Place) -> None:
    """Neither the object nor half of what it contains stays."""
    compile_code(place, "x" * 100_000)
    share(settings(endpoint), place)
    forget(place)

    with limit_files(room):
        state, _ = fetch(settings(endpoint), place)

    assert state is State.FAILED
    assert [path for path in place.vllm.parent.parent.rglob("*") if path.is_file()] == []


def test_code_that_is_there_stays(endpoint: str, bucket: Any, place: Place) -> None:
    """The image brings kernels of its own, and another worker of the machine may be using what it has compiled."""
    compile_code(place, "shared")
    share(settings(endpoint), place)
    forget(place)
    own = place.triton / "KERNEL" / "kernel.cubin"
    own.parent.mkdir(parents=True)
    own.write_text("own")

    assert fetch(settings(endpoint), place)[0] is State.FETCHED

    assert read_code(place) == ["shared", "own"]


def test_kernels_of_other_chips_are_not_shared(tmp_path: Path) -> None:
    """The image has kernels for five; launchers are for all of them."""
    place = Place(NAME, tmp_path / "vllm", tmp_path / "triton", chip=90)
    for folder, chip in (("HOPPER", 90), ("AMPERE", 80), ("LAUNCHER", None)):
        (place.triton / folder).mkdir(parents=True)
        (place.triton / folder / "__grp__kernel.json").write_text("{}")
        if chip:
            (place.triton / folder / "kernel.json").write_text(json.dumps({"target": {"arch": chip}}))

    names = {name for name, _ in shared_cache._list_files(place)}

    assert {name.split("/")[1] for name in names} == {"HOPPER", "LAUNCHER"}


# ---- the name: what changes compiled code, as measured on three H200 (docs/log/start.md) --------------------

H200 = GpuInfo(count=1, memory_gb=141, free_gb=141, name="NVIDIA H200", driver="580.1", capability=(9, 0))


def choose_name(gpus: GpuInfo = H200, weights: str = "/models/a", root: str = "/caches", **fields: Any) -> str:
    chosen = Settings(engine="vllm", **fields)
    preset = choose_preset(chosen, gpus.memory_gb)
    arguments = build_arguments(chosen, Path(weights), preset, True, most_drafts=fields.get("draft_tokens", 4))
    folders = {"vllm": Path(root, "vllm"), "triton": Path(root, "triton")}
    return shared_cache.choose_name(startup.cache_key(gpus), arguments, folders, chosen)


MISSES: dict[str, dict[str, Any]] = {
    "another kind of GPU": {"gpus": GpuInfo(count=1, memory_gb=141, name="NVIDIA H100", capability=(9, 0))},
    "sequences": {"max_num_seqs": 100},
    "drafts": {"draft_tokens": 0},
    "context": {"max_model_len": 4096},
    "tokens of a step": {"max_num_batched_tokens": 9000},
    "precision": {"dtype": "float16"},
    "quantization": {"quantization": "fp8"},
    "precision of the cache": {"kv_cache_dtype": "fp8"},
    "no CUDA graphs": {"enforce_eager": True},
    "no compilation": {"torch_compile": "off"},
    "GPUs of one model": {"tensor_parallel_size": 2},
    "the model": {"model": "glm_ocr"},
    "the path of the weights": {"weights": "/runpod-volume/a"},
    "the path of the cache": {"root": "/root/.cache/twopass"},
    "the key": {"engine_cache_key": KEY},
}
HITS: dict[str, dict[str, Any]] = {
    "another driver": {"gpus": GpuInfo(count=1, memory_gb=141, name="NVIDIA H200", driver="570.1", capability=(9, 0))},
    "share of memory": {"gpu_memory_utilization": 0.5},
    "stream interval": {"stream_interval": 16},
    "page workers": {"page_workers": 3},
    "jobs at once": {"concurrency": 8},
    "where it is shared": {"engine_cache": "s3://bucket/caches"},
}


@pytest.mark.parametrize("change", MISSES)
def test_a_change_of_compiled_code_misses(change: str) -> None:
    """Otherwise a worker would find an object without its code, compile at each start and never share it."""
    assert choose_name(**MISSES[change]) != choose_name()


@pytest.mark.parametrize("change", HITS)
def test_other_changes_hit(change: str) -> None:
    """Workers of an endpoint share one object, whatever else differs."""
    assert choose_name(**HITS[change]) == choose_name()


def test_variables_of_vllm_and_our_code_change_the_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """vLLM's key contains most of its variables; those that say where things are do not count."""
    before = choose_name()
    monkeypatch.setenv("VLLM_LOGGING_LEVEL", "DEBUG")
    monkeypatch.setenv("VLLM_CACHE_ROOT", "/elsewhere")
    assert choose_name() == before

    monkeypatch.setenv("VLLM_USE_FLASHINFER_SAMPLER", "1")
    assert choose_name() != before

    (tmp_path / "a.py").write_text("1")
    first = shared_cache._hash_code(tmp_path)
    (tmp_path / "a.py").write_text("2")
    assert shared_cache._hash_code(tmp_path) != first

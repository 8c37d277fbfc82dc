"""Compile Triton kernels without a GPU, in an image's build, in the variants that a start on a GPU recorded.

Triton finds compiled kernels by hashes of source, variant and compiler; they contain no GPU, driver or path. A variant
that was not recorded is compiled when it is needed, as all are without this. kernels.jsonl has those of an H200 and an
H100; `twopass warm-up --record` adds to a file what another GPU needs.

    python -m twopass.engines.vllm.kernels 80 90   # compute capabilities; into TRITON_CACHE_DIR
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("kernels.jsonl")
RECORD_VARIABLE = "TWOPASS_RECORD_KERNELS"  # names the file in which a core records its kernels
# What a launch chooses. All other options follow from the chip and from Triton's version.
LAUNCH_OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "launch_pdl", "launch_cooperative_grid")


@dataclass(frozen=True)
class Variant:
    """A kernel, `name` in `module`, with the types, constants and alignments of its arguments.

    `constants` and `attributes` are pairs of an argument's place and its value.
    """

    module: str
    name: str
    signature: Mapping[str, Any]
    constants: Sequence[tuple[Sequence[int], Any]]
    attributes: Sequence[tuple[Sequence[int], Any]]
    options: Mapping[str, Any]

    @classmethod
    def parse(cls, module: str, name: str, specialization_data: str) -> Variant:
        """The variant that Triton describes so to its hooks."""
        data = json.loads(specialization_data)
        constants = list(zip(data["constant_keys"], data["constant_vals"], strict=True))
        attributes = list(zip(data["attrs_keys"], data["attrs_vals"], strict=True))
        options = {option: data["options"][option] for option in LAUNCH_OPTIONS}
        return cls(module, name, data["signature"], constants, attributes, options)


def record(file: Path) -> None:
    """From now on, append each variant that this process compiles or loads to the file, as a line of JSON."""
    from triton import knobs

    previous = knobs.runtime.jit_post_compile_hook

    def write(*, fn: Any, compile: Mapping[str, Any], **more: Any) -> Any:
        variant = Variant.parse(fn.module, fn.jit_function.fn.__qualname__, compile["specialization_data"])
        with file.open("a") as lines:
            lines.write(json.dumps(asdict(variant)) + "\n")
        return previous(fn=fn, compile=compile, **more) if previous else None

    knobs.runtime.jit_post_compile_hook = write


def merge(file: Path) -> int:
    """Sort the file's lines and remove repeated ones; returns how many remain."""
    lines = sorted(set(file.read_text().splitlines()))
    file.write_text("".join(f"{line}\n" for line in lines))
    return len(lines)


def compile_recorded(file: Path, capabilities: Sequence[int], processes: int) -> Mapping[str, int]:
    """Compile all variants of the file for chips with these compute capabilities.

    Returns how many were compiled, of how many there is no kernel here, and how many failed. In processes, because
    threads wait for each other in Triton: 14 of them took three times as long.
    """
    variants = [Variant(**json.loads(line)) for line in file.read_text().splitlines()]
    kernels = _find_kernels(variants)
    known = [variant for variant in variants if (variant.module, variant.name) in kernels]
    jobs = [(kernels[variant.module, variant.name], variant, one) for variant in known for one in capabilities]
    with multiprocessing.get_context("fork").Pool(processes, _set_jobs, (jobs,)) as pool:
        results = list(pool.imap_unordered(_compile, range(len(jobs))))
    missing = (len(variants) - len(known)) * len(capabilities)
    return {"compiled": sum(results), "missing": missing, "failed": len(results) - sum(results)}


def _find_kernels(variants: Iterable[Variant]) -> dict[tuple[str, str], Any]:
    """Import the variants' modules. Their kernels are found among all objects, because decorators hide some."""
    from triton.runtime.jit import JITFunction

    for module in {variant.module for variant in variants}:
        with suppress(ImportError):  # recorded with another version
            importlib.import_module(module)
    functions = (one for one in gc.get_objects() if issubclass(type(one), JITFunction))
    return {(function.fn.__module__, function.fn.__qualname__): function for function in functions}


_jobs: Sequence[tuple[Any, Variant, int]] = ()  # of a child process; kernels cannot be sent to it


def _set_jobs(jobs: Sequence[tuple[Any, Variant, int]]) -> None:
    global _jobs
    _jobs = jobs


def _compile(number: int) -> bool:
    """Compile one; False if it cannot be: a variant of another version fails no build, wherever the compiler fails."""
    kernel, variant, capability = _jobs[number]
    try:
        _compile_variant(kernel, variant, capability)
    except Exception as error:
        print(f"{variant.name} for {capability}: {type(error).__name__}: {error}"[:500], file=sys.stderr)
        return False
    return True


def _compile_variant(kernel: Any, variant: Variant, capability: int) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile, make_backend
    from triton.runtime.jit import convert_to_tuple_if_list

    target = GPUTarget("cuda", capability, 32)
    options = make_backend(target).parse_options(dict(variant.options))
    signature = {name: convert_to_tuple_if_list(kind) for name, kind in variant.signature.items()}
    constants = {tuple(place): _read_constant(value) for place, value in variant.constants}
    attributes = {tuple(place): value for place, value in variant.attributes}
    compile(ASTSource(kernel, signature, constants, attributes), target=target, options=options.__dict__)


def _read_constant(value: Any) -> Any:
    """A constant as a kernel's launch has it: Triton writes types, functions and its own constants as text."""
    import triton.language as tl
    from triton.runtime.jit import convert_to_tuple_if_list

    if isinstance(value, str) and tl.dtype.is_dtype(value):
        return tl.dtype(value)
    if isinstance(value, dict) and "jit_function" in value:
        module, _, name = value["jit_function"].partition(":")
        return getattr(importlib.import_module(module), name)
    if isinstance(value, dict) and "constexpr" in value:
        return tl.constexpr(convert_to_tuple_if_list(value["constexpr"]))
    return convert_to_tuple_if_list(value)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m twopass.engines.vllm.kernels", description=__doc__)
    parser.add_argument("capabilities", type=int, nargs="+", metavar="CAPABILITY")
    parser.add_argument("--record", type=Path, default=RECORDED)
    arguments = parser.parse_args()
    # vLLM turns Triton off where it sees no GPU, unless none is to be seen: then some may come later.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    os.environ.setdefault("TRITON_STORE_BINARY_ONLY", "1")
    counts = compile_recorded(arguments.record, arguments.capabilities, len(os.sched_getaffinity(0)))
    print(json.dumps(counts))
    if not counts["compiled"]:
        raise SystemExit("no kernel was compiled: this needs vLLM for GPUs and Triton")


if __name__ == "__main__":
    main()

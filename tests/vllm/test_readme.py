"""The README's command line of `vllm serve` against the pinned vLLM."""

from __future__ import annotations

import shlex

import pytest

from tests import ROOT
from twopass.engines.vllm.plugin import NGRAM

pytestmark = pytest.mark.filterwarnings("default")  # torch's and vLLM's are not ours to mend
README = ROOT / "README.md"


def test_vllm_takes_the_readmes_command() -> None:
    """Every option is one of this version's, and the processor is where it says."""
    from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (line,) = (line for line in README.read_text().splitlines() if line.startswith("vllm serve "))
    told = make_arg_parser(FlexibleArgumentParser()).parse_args(shlex.split(line)[2:])
    (processor,) = told.logits_processors

    assert told.model_tag == "/models/deepseek_ocr"
    assert (told.scheduling_policy, told.limit_mm_per_prompt) == ("priority", {"image": 1})
    assert processor == NGRAM

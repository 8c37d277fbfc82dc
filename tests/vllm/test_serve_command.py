"""The `vllm serve` command of docs/engines.md works with the pinned vLLM."""

from __future__ import annotations

import shlex

import pytest

from tests import ROOT
from twopass.engines.vllm.plugin import NGRAM_V2

pytestmark = pytest.mark.filterwarnings("default")  # torch and vLLM emit warnings that we cannot fix
PAGE = ROOT / "docs" / "engines.md"


def test_vllm_takes_the_documented_command() -> None:
    """vLLM parses every option, and the logits processor has the path in NGRAM_V2."""
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    (line,) = (line for line in PAGE.read_text().splitlines() if " vllm serve /models" in line)
    arguments = make_arg_parser(FlexibleArgumentParser()).parse_args(shlex.split(line)[3:])
    (processor,) = arguments.logits_processors

    assert arguments.model_tag == "/models/deepseek_ocr"
    assert (arguments.scheduling_policy, arguments.limit_mm_per_prompt) == ("priority", {"image": 1})
    assert processor == NGRAM_V2

"""What the first start of a machine leaves out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.vllm.tiny import write_checkpoint
from twopass.engines.vllm.plugin import SWITCH

CONFIGURE = """
import sys
from pathlib import Path
from twopass.engines.vllm import plugin
plugin.activate()
plugin.register_class(Path(sys.argv[1]))
from vllm.engine.arg_utils import AsyncEngineArgs
config = AsyncEngineArgs(model=sys.argv[1], dtype="float32", max_model_len=512).create_engine_config()
assert config.model_config.is_multimodal_model
"""


def test_no_other_process_inspects_the_models_class(tmp_path: Path) -> None:
    """vLLM keeps what such a process finds; without a file, there was none."""
    model = write_checkpoint(tmp_path / "model")
    environment = os.environ | {"VLLM_CACHE_ROOT": str(tmp_path / "cache"), SWITCH: "1"}

    subprocess.run([sys.executable, "-c", CONFIGURE, model], env=environment, check=True)

    assert list((tmp_path / "cache").glob("modelinfos/*")) == []

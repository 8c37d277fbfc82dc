"""What the classes for vLLM's second model runner replace is in the plugin's table."""

from __future__ import annotations

import pytest

from tests.fakes.replaced_methods import find_replaced, has_row
from twopass.engines.vllm.plugin.draft_texts import DraftTexts
from twopass.engines.vllm.plugin.ngram_v2 import NoRepeatNGram
from twopass.engines.vllm.plugin.speculator import TextSpeculator


@pytest.mark.parametrize("ours", [NoRepeatNGram, DraftTexts, TextSpeculator], ids=lambda ours: ours.__name__)
def test_every_method_that_replaces_one_of_vllm_is_checked(ours: type) -> None:
    """A new method needs its row in the table of what vLLM must have."""
    replaced = [*find_replaced(ours, ours)]

    assert len(replaced) > 2
    assert not [methods for methods in replaced if not has_row(methods, "deepseek_ocr")]

"""Keywords: equal in every process, and fast for long texts."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.fakes.texts import CHINESE, ENGLISH, KOREAN
from twopass.text import keywords


def test_keywords_do_not_depend_on_the_process() -> None:
    """Two workers write equal bytes: neither the order of sets nor the hash seed matters."""
    texts = [ENGLISH, KOREAN, CHINESE]
    code = f"from twopass.text import keywords as k; print([k.extract(t, None, 10) for t in {texts!r}])"

    outputs = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }

    assert len(outputs) == 1 and outputs.pop().strip()


def test_only_the_beginning_of_a_long_element_is_read() -> None:
    """A very long table does not block its page worker."""
    assert keywords.extract("spring water " * 100_000, "en", 5) == keywords.extract("spring water " * 1000, "en", 5)

"""Answers of the real Unlimited-OCR, from public records, in excerpts."""

from __future__ import annotations

# Chedrian07/PDF_MARKDOWN_Unlimited-OCR (MIT), frontend/tests/fixtures/real-2page-1chunk.sse.txt: both pages, some
# paragraphs left out. The prompt for several pages makes the model write <PAGE>.
PAGE_1 = (
    "<PAGE><|det|>title [118, 76, 705, 106]<|/det|>Unlimited-OCR End-to-End Sample\n"
    "<|det|>text [116, 120, 588, 157]<|/det|>This document validates PDF to Markdown conversion.\n"
    "<|det|>image [119, 175, 875, 476]<|/det|>\n"
    "<|det|>text [117, 497, 388, 515]<|/det|>Table 1. Model configurations\n"
    "<|det|>table [109, 520, 860, 596]<|/det|><table><tr><td>Mode</td><td>base_size</td></tr>"
    "<tr><td>gundam</td><td>1024</td></tr></table>\n"
    "<|det|>text [117, 676, 726, 694]<|/det|>The pricing follows  \\( E = mc^{2} \\)  style notation.\n"
)
PAGE_2 = (
    "<PAGE><|det|>title [117, 80, 497, 106]<|/det|>Section 2: Figures and Lists\n"
    "<|det|>image [119, 130, 728, 416]<|/det|>\n"
    "<|det|>text [138, 451, 513, 469]<|/det|>- First bullet item about long-horizon parsing.\n"
    "<|det|>text [138, 477, 484, 493]<|/det|>- Second bullet item about page markers.\n"
    "<|det|>list [138, 451, 538, 520]<|/det|>\n"
    "<|det|>text [117, 558, 409, 575]<|/det|>End of sample document. Page 2 of 2.\n"
)
# The same repository, backend/tests/fixtures/j_9ac80d37f2d4_page27_numeric_loop.txt: its start. The whole answer goes
# on to "# 80."; it has no tag.
NUMERIC_LOOP = (
    "# 9. 3. 3. 3. 3. 3. 3. 3. 3. 3. 3. 3.    # 10. 3. 3. 3. 3. 3. 3. 3. 3. 3. 3. 3.   # 11. 3. 3. 3. 3. 3. 3. 3. 3."
)
# AIwork4me/Unlimited-OCR-ROCm (MIT), docs/parity/evidence/phase0_rswa_ablation_results.json: starts of answers.
HEADS = {
    "a slide": (
        "<|det|>title [162, 88, 838, 172]<|/det|>Is Good English Important?\n"
        "<|det|>title [56, 236, 331, 286]<|/det|>- For Individual\n"
        "<|det|>text [102, 301, 913, 443]<|/det|>- Reading – lifelong learning to imp",
        ["title", "section_header", "list_item"],
    ),
    "an equation": (
        "<|det|>title [271, 86, 728, 172]<|/det|>Integral Calculus\n<|det|>equation [220, 235, 755, 440]<|/det|>\\[\n"
        "\\int a x ^ {n} \\partial x = a \\frac {x ^ {(n + 1)}}{n + 1} + C\n\\]\n<|det|>equation [269, 498, 72",
        ["title", "formula"],
    ),
    "a table that is cut off": (
        "<|det|>table [20, 30, 978, 973]<|/det|><table><tr><td></td><td>Connecticut</td><td>Mississippi</td></tr>"
        "<tr><td>Department Responsible for LEP</td><td>D",
        ["table"],
    ),
    "a book": (
        "<|det|>header [101, 67, 337, 84]<|/det|>Seeing the Forest through the Tree\n"
        "<|det|>text [99, 107, 663, 126]<|/det|>Now let's review these concepts with the following tree example:\n"
        "<|det|>image [310, 14",
        ["page_header", "text"],
    ),
}

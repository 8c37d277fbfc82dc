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

# kthr/unlimited-ocr-max (MIT), unlimited_ocr_max/profile_data/references/bf16: answers to the prompt for one page,
# equal to those of the reference in float32 on PyTorch. syn_figure_caption.md whole; of the others, some blocks are
# left out.
FIGURE_PAGE = (
    "<|det|>title [105, 82, 402, 100]<|/det|>2 Layout of the gauge network\n"
    "<|det|>text [104, 116, 851, 150]<|/det|>Figure 2 shows the six recording stations and the two reference marks. "
    "Station four is the only one on the western bank and it is the one whose record breaks in 1969.\n"
    "<|det|>image [156, 238, 849, 321]<|/det|>\n"
    "<|det|>chart [156, 238, 849, 288]<|/det|>\n"
    "<|det|>chart [156, 336, 849, 438]<|/det|>\n"
    "<|det|>image_footnote [637, 502, 706, 514]<|/det|>1962-1974\n"
    "<|det|>image_caption [104, 566, 879, 597]<|/det|>Figure 2: The six recording stations in downstream order, with "
    "the stage series at station three below. The break in 1969 is not shown here; see Figure 4.\n"
    "<|det|>text [104, 635, 880, 687]<|/det|>The stations are numbered downstream and the numbering has never changed, "
    "which is worth saying because the 1971 report renumbers them in the opposite sense without noting that it has "
    "done so. Wherever the two reports disagree on a station number this one is the original."
)
REFERENCES = (
    "<|det|>list [108, 96, 893, 445]<|/det|>\n"
    "<|det|>ref_text [115, 101, 885, 137]<|/det|>[31] W. Wang, Z. Gao, L. Gu, et al. Internvl3.5: Advancing "
    "open-source multimodal models in versatility, reasoning, and efficiency. arXiv preprint arXiv:2508.18265, 2025.\n"
    "<|det|>ref_text [115, 261, 885, 295]<|/det|>[34] H. Wei, Y. Sun, and Y. Li. Deepseek-ocr: Contexts optical "
    "compression. arXiv preprint arXiv:2510.18234, 2025.\n"
    "<|det|>page_number [489, 923, 511, 935]<|/det|>14"
)
CONTENTS = (
    "<|det|>title [105, 83, 220, 102]<|/det|>Contents\n"
    "<|det|>title [107, 136, 893, 152]<|/det|>Preface ...... vii\n"
    "<|det|>title [107, 168, 891, 183]<|/det|>1 Instruments and their errors .... 1\n"
    "<|det|>text [140, 199, 891, 215]<|/det|>1.1 Reading a vernier 3\n"
    "<|det|>text [140, 228, 892, 243]<|/det|>1.2 Parallax 9\n"
    "<|det|>text [140, 257, 892, 272]<|/det|>1.3 The zero that is not zero 14\n"
    "<|det|>title [106, 286, 891, 301]<|/det|>2 Recording 21\n"
    "<|det|>text [139, 317, 892, 332]<|/det|>2.1 The field sheet 22\n"
    "<|det|>title [106, 615, 891, 630]<|/det|>Appendix A Sheets not reduced 88\n"
    "<|det|>title [106, 679, 891, 694]<|/det|>Index 101"
)
TABLE_PAGE = (
    "<|det|>title [106, 82, 351, 100]<|/det|>Table 3 Station inventory\n"
    "<|det|>text [104, 116, 851, 150]<|/det|>Every station on the estuary reach, with the instrument fitted at the "
    "close of the survey and the number of complete months recorded.\n"
    "<|det|>table [122, 182, 880, 505]<|/det|><table><tr><td>Station</td><td>Bank</td></tr>"
    "<tr><td>S1</td><td>east</td></tr></table>\n"
    "<|det|>text [104, 535, 848, 569]<|/det|>The two benchmarks carry no instrument."
)
RULED_TABLE = (
    "<|det|>title [105, 82, 315, 98]<|/det|>5 Accumulation rates\n"
    "<|det|>table [223, 184, 778, 481]<|/det|><table><tr><td>Core</td><td>Depth (cm)</td></tr>"
    "<tr><td>C01</td><td>212</td></tr></table>\n"
    "<|det|>text [104, 502, 768, 516]<|/det|>Table 5: Accumulation rates by core. Cores four and ten were lost in "
    "storage and are omitted throughout.\n"
    "<|det|>text [103, 554, 884, 606]<|/det|>The gradient across the reach is clear in this table."
)
PROCEDURE = (
    "<|det|>title [105, 83, 229, 98]<|/det|>4 Procedure\n"
    "<|det|>title [105, 173, 241, 189]<|/det|>4.1 Preparation\n"
    "<|det|>text [131, 291, 847, 325]<|/det|>3. Wet sieve at sixty three micrometres, retaining both fractions.\n"
    "<|det|>text [130, 381, 825, 414]<|/det|>(a) Dry the coarse fraction at one hundred and five degrees."
)
# figure_wide.md, of a paper's first page: the prompt for one page gave <PAGE>, too. From dense_body.md, a citation.
FIRST_PAGE = (
    "<PAGE><|det|>aside_text [25, 291, 60, 707]<|/det|>arXiv:2606.23050v1 [cs.CV] 22 Jun 2026\n"
    "<|det|>header [123, 29, 325, 77]<|/det|>Baidu 百度\n"
    "<|det|>title [357, 134, 642, 154]<|/det|>Unlimited OCR Works\n"
    "<|det|>title [449, 273, 550, 291]<|/det|>Abstract\n"
    "<|det|>text [112, 132, 884, 309]<|/det|>Take OCR as an example—no existing model  \\( [10, 30, 33, 34] \\)  "
    "can even parse ten of pages in a single forward pass.\n"
    "<|det|>image [167, 601, 825, 804]<|/det|>\n"
    "<|det|>image_caption [112, 813, 885, 896]<|/det|>Figure 1 | Illustration of Reference Sliding Window Attention."
)
PAGES = {
    "PAGE_1": PAGE_1, "PAGE_2": PAGE_2, "FIGURE_PAGE": FIGURE_PAGE, "REFERENCES": REFERENCES, "CONTENTS": CONTENTS,
    "TABLE_PAGE": TABLE_PAGE, "RULED_TABLE": RULED_TABLE, "PROCEDURE": PROCEDURE, "FIRST_PAGE": FIRST_PAGE,
}  # fmt: skip

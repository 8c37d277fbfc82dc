"""Look up the characters of formulas: their LaTeX, and what the codes of mathematical fonts mean."""

from __future__ import annotations

import re
import unicodedata
from types import MappingProxyType

_GREEK = (
    "α alpha β beta γ gamma δ delta ε varepsilon ζ zeta η eta θ theta ι iota κ kappa λ lambda μ mu ν nu ξ xi π pi "
    "ρ rho ς varsigma σ sigma τ tau υ upsilon φ varphi χ chi ψ psi ω omega ϵ epsilon ϕ phi ϑ vartheta ϱ varrho ϖ varpi "
    "Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Υ Upsilon Φ Phi Ψ Psi Ω Omega ∆ Delta"
)
_OPERATORS = (
    "× times ÷ div ± pm ∓ mp · cdot ⋅ cdot ∙ bullet • bullet ∗ ast ⋆ star ∘ circ ⊕ oplus ⊖ ominus ⊗ otimes ⊙ odot "
    "† dagger ‡ ddagger ∧ wedge ∨ vee ∩ cap ∪ cup ∖ setminus ≤ le ≥ ge ⩽ leqslant ⩾ geqslant ≪ ll ≫ gg ≠ ne ≈ approx "
    "≃ simeq ≅ cong ≡ equiv ∼ sim ∝ propto ≜ triangleq ≺ prec ≻ succ ∈ in ∉ notin ∋ ni ⊂ subset ⊃ supset ⊆ subseteq "
    "⊇ supseteq ⊢ vdash ⊨ models ⊥ perp ∥ parallel ∣ mid → to ← leftarrow ↔ leftrightarrow ⇒ Rightarrow ⇐ Leftarrow "
    "⇔ Leftrightarrow ↦ mapsto ↑ uparrow ↓ downarrow ⟶ longrightarrow ⟹ Longrightarrow ∀ forall ∃ exists ¬ neg ∞ infty "
    "∂ partial ∇ nabla ∅ emptyset ℓ ell ℏ hbar ℵ aleph ℜ Re ℑ Im ∠ angle △ triangle □ square … ldots ⋯ cdots ⋮ vdots "
    "⋱ ddots ∴ therefore ∵ because"
)
_LARGE = "∑ sum ∏ prod ∐ coprod ⋃ bigcup ⋂ bigcap ⨁ bigoplus ⨂ bigotimes ⋁ bigvee ⋀ bigwedge"
_INTEGRALS = "∫ int ∬ iint ∭ iiint ∮ oint"


def _make_table(words: str) -> MappingProxyType[str, str]:
    parts = words.split()
    return MappingProxyType({char: f"\\{name}" for char, name in zip(parts[::2], parts[1::2], strict=True)})


GREEK = _make_table(_GREEK)
LARGE = _make_table(_LARGE)  # operators with limits above and below
INTEGRALS = _make_table(_INTEGRALS)
_PLAIN = frozenset("+=<>/,.;:!?*'")
_OTHERS = MappingProxyType(
    {"−": "-", "-": "-", "–": "-", "‐": "-", "%": r"\%", "&": r"\&", "#": r"\#", "$": r"\$", "_": r"\_",
     "°": r"{^{\circ}}", "′": "'", "″": "''", "µ": r"\mu", "@": "@", "’": "'", "∶": ":", "⁄": "/", "∕": "/"}
)  # fmt: skip
SYMBOLS = MappingProxyType({**GREEK, **_make_table(_OPERATORS), **LARGE, **INTEGRALS, **_OTHERS})
OPENING = MappingProxyType({"(": "(", "[": "[", "{": r"\{", "⟨": r"\langle", "⌊": r"\lfloor", "⌈": r"\lceil"})
CLOSING = MappingProxyType({")": ")", "]": "]", "}": r"\}", "⟩": r"\rangle", "⌋": r"\rfloor", "⌉": r"\rceil"})
BARS = MappingProxyType({"|": "|", "‖": r"\|"})
DELIMITERS = MappingProxyType({**OPENING, **CLOSING, **BARS})
PRIMES = frozenset("′″'’")
ROOTS = frozenset("√")
ACCENTS = MappingProxyType(
    {"ˆ": "hat", "^": "hat", "\u0302": "hat", "˜": "tilde", "~": "tilde", "\u0303": "tilde", "¯": "bar", "ˉ": "bar",
     "\u0304": "bar", "˙": "dot", "\u0307": "dot", "¨": "ddot", "\u0308": "ddot", "⃗": "vec", "ˇ": "check", "˘": "breve"}
)  # fmt: skip
_FUNCTIONS = (
    "sin cos tan cot sec csc sinh cosh tanh arcsin arccos arctan log ln lg exp max min sup inf lim det dim ker deg gcd "
    "arg hom Pr"
)
FUNCTIONS = frozenset(_FUNCTIONS.split())
WITH_LIMITS = frozenset({"max", "min", "sup", "inf", "lim"})
_SAME_CHARACTER = frozenset({"", "font", "compat", "wide", "narrow"})  # kinds of Unicode's decompositions
_SCRIPTS = MappingProxyType({"super": "^", "sub": "_"})
_ALPHABETS = (("DOUBLE-STRUCK", "mathbb"), ("SCRIPT", "mathcal"), ("FRAKTUR", "mathfrak"), ("BLACK-LETTER", "mathfrak"))


def is_letter(char: str) -> bool:
    """Whether a character is an upright Latin letter, of which words are made."""
    return char.isalpha() and char.isascii()


def is_italic(char: str) -> bool:
    """Whether a character is a letter of Unicode's mathematical alphabets, which are no parts of words."""
    return char.isalpha() and unicodedata.normalize("NFKC", char) != char


def write_symbol(char: str) -> str | None:
    """The LaTeX of a character; None if it is not known, such as a private one."""
    if char in _PLAIN or (char.isascii() and char.isalnum()):
        return char
    if known := SYMBOLS.get(char) or DELIMITERS.get(char):
        return known
    plain = unicodedata.normalize("NFKC", char)
    if plain == char or len(plain) != 1:
        return None
    latex = plain if plain.isascii() and plain.isalnum() else GREEK.get(plain) or SYMBOLS.get(plain)
    kind = _find_kind(char)
    if not latex or kind not in _SAME_CHARACTER | _SCRIPTS.keys():
        return None
    script = _SCRIPTS.get(kind)
    return f"{{}}{script}{{{latex}}}" if script else _set_in_alphabet(latex, unicodedata.name(char, ""))


def _find_kind(char: str) -> str:
    """How a character differs from the one that Unicode decomposes it to: "font" for another alphabet."""
    decomposition = unicodedata.decomposition(char)
    return decomposition[1:].partition(">")[0] if decomposition.startswith("<") else ""


def _set_in_alphabet(latex: str, name: str) -> str:
    for word, command in _ALPHABETS:
        if word in name:
            return f"\\{command}{{{latex}}}"
    return rf"\mathbf{{{latex}}}" if "BOLD" in name else latex


# ---- fonts with codes of their own ----

UNKNOWN = "\ufffd"
MAX_CODE = 0xFF  # characters beyond it are no codes
_FAMILY = re.compile(r"(?:^|\+)(CMEX|CMSY|CMBSY|CMMIB|CMMI|MSBM|EUFM|Symbol(?=MT|[^a-z]|$))", re.IGNORECASE)
# In the extension font, large operators, radicals and brackets have the codes of letters and of control characters.
_EXTENSION = MappingProxyType(
    {"P": "∑", "X": "∑", "Q": "∏", "Y": "∏", "R": "∫", "Z": "∫", "H": "∮", "I": "∮", "S": "⋃", "[": "⋃", "T": "⋂",
     "\\": "⋂", "L": "⨁", "M": "⨁", "N": "⨂", "O": "⨂", "V": "⋀", "^": "⋀", "W": "⋁", "_": "⋁", "`": "∐", "a": "∐",
     "p": "√", "q": "√", "r": "√", "s": "√", "h": "[", "i": "]", "j": "⌊", "k": "⌋", "l": "⌈", "m": "⌉", "n": "{",
     "o": "}", "D": "⟨", "E": "⟩", "\x00": "(", "\x01": ")", "\x02": "[", "\x03": "]", "\x08": "{", "\x0c": "|",
     "\x10": "(", "\x11": ")", "\x12": "(", "\x13": ")", "\x14": "[", "\x15": "]", "\x1a": "{", "\x1b": "}"}
)  # fmt: skip
_SYMBOL_FONT = dict(
    zip(
        "abcdefghijklmnopqrstuvwxyzJVDFGLPQSUWXY±£³´¥¶¹»ÎåòÖ×®°",
        "αβχδεφγηιϕκλμνοπθρστυϖωξψζϑςΔΦΓΛΠΘΣΥΩΞΨ±≤≥×∞∂≠≈∈∑∫√⋅→°",
        strict=True,
    )
)
_CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SCRIPT_CAPITALS = dict(zip(_CAPITALS, "𝒜ℬ𝒞𝒟ℰℱ𝒢ℋℐ𝒥𝒦ℒℳ𝒩𝒪𝒫𝒬ℛ𝒮𝒯𝒰𝒱𝒲𝒳𝒴𝒵", strict=True))
_DOUBLE_STRUCK = dict(zip(_CAPITALS, "𝔸𝔹ℂ𝔻𝔼𝔽𝔾ℍ𝕀𝕁𝕂𝕃𝕄ℕ𝕆ℙℚℝ𝕊𝕋𝕌𝕍𝕎𝕏𝕐ℤ", strict=True))
_VARIANTS = MappingProxyType({"ε": "ϵ", "ϵ": "ε", "φ": "ϕ", "ϕ": "φ"})  # TeX's plain names are those of the other forms


def find_font_family(font: str) -> str:
    """The family of a font with codes of its own, in capitals; empty for all other fonts."""
    found = _FAMILY.search(font)
    return found.group(1).upper() if found else ""


def decode(char: str, family: str) -> str:
    """What a character of such a family means; U+FFFD where that is not certain."""
    if not family:
        return char
    if family == "CMEX":
        is_named = char in LARGE or char in INTEGRALS or char in ROOTS
        return char if is_named else _EXTENSION.get(char, UNKNOWN)
    if family in ("CMSY", "CMBSY"):
        return _SCRIPT_CAPITALS.get(char) or (UNKNOWN if char.isalnum() and char.isascii() else char)
    if family == "SYMBOL":
        return _SYMBOL_FONT.get(char, char if char.isascii() or ord(char) > MAX_CODE else UNKNOWN)
    if family == "MSBM":
        return _DOUBLE_STRUCK.get(char) or (UNKNOWN if char.isalnum() and char.isascii() else char)
    if family.startswith("CMMI"):
        return UNKNOWN if char in ACCENTS else _VARIANTS.get(char, char)
    return UNKNOWN

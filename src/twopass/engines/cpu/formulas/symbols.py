"""The LaTeX of single characters in formulas."""

from __future__ import annotations

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
    """Return how a character differs from the one that Unicode decomposes it to: "font" for another alphabet."""
    decomposition = unicodedata.decomposition(char)
    return decomposition[1:].partition(">")[0] if decomposition.startswith("<") else ""


def _set_in_alphabet(latex: str, name: str) -> str:
    for word, command in _ALPHABETS:
        if word in name:
            return f"\\{command}{{{latex}}}"
    return rf"\mathbf{{{latex}}}" if "BOLD" in name else latex

"""Estimate without a dictionary whether words can be words of a language: from pairs of letters and the shape of words.

Wrongly mapped fonts and bad OCR write letters that never follow each other ("mmtzk"), and mix letters with signs and
capitals ("saUed", "f,.om"). The tables hold the pairs that make up at least 1 of 20,000 pairs in: this project's
documentation and stop words (English), and stop words with the messages of common command line programs in the other
languages (23,000 to 66,000 words each). Nothing is said about words in other than Latin script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

_PAIRS = {
    "en": (
        "abcdfghiklmnprstuvwxy baefijlorstuy cacehijkloprstuy dadefgiklmnoprsuy eabcdefghijklmnopqrstuvwxy "
        "faefilorstuy gaeghilnoprstu habeilmorstuy iabcdefgklmnoprstvxz jaeiosu kadeilnops lacdefiklmoprstuvwy "
        "mabeilmnopsuy nacdefgiklmnoprstuvwxy oabcdefgijklmnoprstuvwxyz pacdehilnoprstuy qu "
        "rabcdefgiklmnoprstuvwy sacdefhiklmnoprstuwy tacdefhilmoprstuwxy uabcdefgilmnoprst vaeilmo waehinors "
        "xaceimpt yabcdeimnopstw zei"
    ),
    "de": (
        "abcdfghiklmnprstuvxyz babcefghijlnorstuwyz cadehiklorst dabdefilmnoprstuwyü "
        "eabcdefghiklmnoprstuvwxyzßäö faefgilnorstuwzü gabeghiklnoprstuü habefghilmnorstuwzäöü "
        "iabcdefghiklmnoprstuvxz jaeo kaegilnorstuzöü labcdefgilnopstuvwyzäöü mabdefgilmopstuwäöü "
        "nabcdefghiklmnoprstuvwzäöü obcdfghiklmnoprstuvwxzß pacdefhikloprstu qu rabcdefghiklmnoprstuvwyzäöü "
        "sabcdefghiklmnoprstuvwyzä tacdefghiklmnoprstuvwyzäü uabcefgiklmnoprstwxzß vaeios waeiouäöü xaefiptx "
        "ymnpst zaeiklotuwzä ße äcdfghlnrstuß öcfghnprstß übcfghlmnprst"
    ),
    "fr": (
        "abcdfgijklmnpqrstuvxyçî baeijlorstué cacehiklorstuèé dadeiloprsuyèé eabcdefghilmnopqrstuvxyz "
        "faefilorstué gaehilmnoprstué haehimortuyèéô iabcdefglmnopqrstvxzèé jaeouà kaegist lacdefilopstuyèé "
        "mabeimopstuèéê nacdefgilnoqrstuvé obcdfgilmnopqrstuvwy pacdehikloprstué qu rabcdefgilmnopqrstuvèéêô "
        "sacefhikmopqrstuvyé tacdefhiloprstuxyâèéô uabcdefgijlmnoprstvxéêë vaeioré wai xaceiptxé yaelmnpsé zeioé "
        "âc çao èdglmrstv éabcdefgijlmnpqrstuvé êmt înt ôlt"
    ),
    "es": (
        "abcdefghijklmnpqrstuvxyzíñú baceijloprstuyóú cacdehikloprstuíó daeilmoprstuí eabcdefgijlmnopqrstuvxyzíñ "
        "faefilorstuí gaehilmnoprstuú haehiotué iabcdefgjlmnopqrstvxzéó jaeou kaegist lacdefgilmopqstuvzíóú "
        "mabeimnoptuáéóú nacdefgijklostuvzáóú obcdfgijklmnopqrstuvwx pacdeikloprstuáú qu "
        "rabcdefgilmnopqrstuvzáíó sabcdefhiklmopqrstuvyíó tacdefhiklmoprstuwxyáéíó uabcdefgijlmnoprstvxyáéí "
        "vaeiouáéí wai xaceiptxy yaenoptuú zaceioqó ácfglmnrstx énrstx íacdfgmnos ñao ódlnrs úabcflmnst"
    ),
    "it": (
        "abcdefghiklmnprstuvxyz babeilorsuy cacehikloprstu dadeilopu eabcdefgiklmnopqrstvwxz faefilorstu "
        "gaeghilnoprstu haeiorté iabcdefglmnoprstuvxzàòù jo kaegistu labcdefilmopstuvz mabeimopu "
        "nacdefgiklnopqstuvz oabcdfgiklmnoprstuvwxz pacdeikloprstuz qu racdefgiklmnoprstuvyzà "
        "sabcefhiklmoprstuvy tacdefhiklmoprstuwyà uabcdefgilmnoprstxzò vaeioruv waeilo xeptxy ynpst zaeioz"
    ),
    "pt": (
        "abcdfgijklmnopqrstuvxyzçí baceijlorstuyéíó cadehikloprstuêíó daeiloprsuêí eabcdefgijlmnopqrstuvxyzçú "
        "faefilorstuyí gaeilmnoprstuí haehiortu iabcdefgilmnopqrstuvxzáçú jaeou kaegistu lacefghilmopqstuvéí "
        "mabeimoptuáéíóú nacdefghijkloqstuvzáãçíóú oabcdfgiklmnopqrstuvwx pacdeikloprstuáçóôú qru "
        "racdefgiklmnopqrstuvyáâãçéêíóõ sacdefghiklmopqrstuvyáãíõ tacdefhiklmoprstuwxyáãéêíó "
        "uabcdefgilmnoprstxzáçêí vaeioráéí wa xaceioptxyã ynpst zaeio áfglqrstvx âmn ão çaoãõ émrst êmns "
        "ícdfgmnrstv ódglprstx ôdn õe úbdlmnst"
    ),
    "nl": (
        "aabcdefgiklmnprstuvxy babceijloprsuy cacdehiklorstu dabdefghilmnoprstuwy eabcdefghiklmnopqrstuvwxzëï "
        "fabdefghiklorstuwy gabdeghilmnoprstuvz haehiortu iabcdefgijklmnoprstvxzë jadefgiklnopsuvwz "
        "kabeghiklmnoprstuw labcdefghiklmnoprstuvwy mabdegilmopstuyz nabcdefghijklmnoprstuvwz "
        "oabcdefgiklmnoprstuvwz pabcdeghijklmnoprstuvwz qu rabcdefghiklmnoprstuvwyz sabcdefghijklmnoprstuvwy "
        "tabcdefghiklmnoprstuvwyz uabcdefgiklmnprstuwxz vaeiloruó wadeio xaefiptx ymnpst zaeiouy éné ëinr ïn óró"
    ),
}
_FOLLOWERS = {language: {row[0]: frozenset(row[1:]) for row in rows.split()} for language, rows in _PAIRS.items()}
MIN_LENGTH = 3  # letters of a word whose pairs are judged
_LATIN_WORD = re.compile(r"[a-zà-öø-ÿœ]+")
_EDGES = ".,;:!?…()[]{}\"'“”‘’«»„‚—–-*•&/$€£%§©®™°<>=+#|~"
_ODD_SHAPE = re.compile(
    r"[a-zß-öø-ÿ][A-ZÀ-ÖØ-Þ](?=[a-zß-öø-ÿ])(?<!Mc[A-Z])(?<!Mac[A-Z])"  # saUed
    r"|[A-Za-zÀ-ÿ][^\w\s'’.\-–—/&@:+·(),][A-Za-zÀ-ÿ]"  # wor$d
    r"|[A-Za-zÀ-ÿ]{2}[,;:(][A-Za-zÀ-ÿ]|[,;:.]{2}[A-Za-zÀ-ÿ]"  # f,.om
    r"|[a-zß-öø-ÿ]{2}\d[a-zß-öø-ÿ]"  # wa1er
)


def measure_plausibility(text: str) -> tuple[float, int]:
    """The share of plausible words in Latin script, in the language that fits best, and how many words were judged."""
    words: Counter[str] = Counter()
    odd = 0
    for token, count in Counter(text.split()).items():
        core = token.strip(_EDGES)
        if _ODD_SHAPE.search(core):
            odd += count
            continue
        for word in _LATIN_WORD.findall(core.lower()):
            if len(word) >= MIN_LENGTH:
                words[word] += count
    judged = words.total() + odd
    plausible = max(_count_plausible(words, followers) for followers in _FOLLOWERS.values())
    return (plausible / judged if judged else 1.0), judged


def _count_plausible(words: Counter[str], followers: Mapping[str, frozenset[str]]) -> int:
    return sum(
        count
        for word, count in words.items()
        if all(second in followers.get(first, ()) for first, second in pairwise(word))
    )

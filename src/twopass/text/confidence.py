"""Turn what is known about a text into its confidence: how many of its words are likely to be right, and how we know.

The tables were fitted to measured word accuracy; docs/log/reading.md has the measurements.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from twopass.document import Confidence, ConfidenceMethod, Flag
from twopass.text import prose

# ---- plausibility ----

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
    "pl": (
        "abcdfgijklmnprstuwzćłńśźż baeilnorsuyóąęł caehijknouyzóą dabcdeiklmnoprstuwyzóąęłśźż "
        "eabcdfgjklmnoprstuwzćłńśźż faeiloru gadeilnoruóąęł haceinorwy iabcdegijklmnoprstuwzóąćęłńśż jadeimnostuwąęś "
        "kacilnorstuwóąęłż labegiknostuąę mabceiknopuyó nacdefgiknopstuwyąę obcdfgjklmnprstwzłńśż paceiklnorstuyóęł "
        "racdefgikmnopstuwyzóąę sacefijklnoptuwyzóął taeklmnoruwyóąęł uabcdfgjklmnoprstwzłńśż wacdegiknoprstuyzóąęł "
        "ybcdfgjklmnprstwzćłśż zabcdegijkmnoprstuwyąęł óbcdjlrtwłźż ącdgptzćźż ębcdkptzćś łacdeknouyóąę ńcs śclmnrwć "
        "źnrwć żadeklnosyą"
    ),
    "cs": (
        "abcdfghijklmnprstuvxzčňřšž badeijlnorsuvyáíýě caehiklnotuyíů dabcdegiklmnoprstuvyáéíýěřů "
        "eabcdefghijklmnoprstuvxzúčňřšž faefiortu gaeilnoru haceilnoruyáéý iabcdefghijklmnoprstuvxzáčřšž "
        "jadeimnostváíšů kacdelnortuvyáéóýů labceghiklnostuyzáéíýňšů mabceiknoprtuyáéíóýěů nacdefgiknostuvyzáéíýčěšů "
        "obcdfghijklmnoprstuvzčňřšž paceiklnorstuyáíěřů rabcdegikmnopstuvyzáéýčšůž sabcdehiklmnoptuvyáíů "
        "taeiklmnorsuvwyáéíýěřšů uabcdfhjklmnprstvxzáčňšž vacdeiklnoprsuyzáéíýěňřšůž wai xeioptu ybcdhklmnprstvčšž "
        "zabcdehijklmnoprstuvyáíšů ácdhjklmnprstvzčřšž édhlmnrstz ícdhklmnprstvzčřšťž ód údlprsč ýbcmprstvzš "
        "čaeiklnotuáíů ěcdhjklmnprstzčřšťž ňkou řaeiknoáíů šaeiklnoptí ťo ůblmsvž žabcdeiknotuáí"
    ),
    "hr": (
        "abcdfghjklmnoprstuvzćčđšž baeijlnoruv caeijoru dabcegijklmnorsuv eabcdfghijklmnoprstuvzćčđšž faeiorstu "
        "gadeilnoru haeiotuv iabcdfghjklmnoprstvzćčđšž jaeikmnostuv kaceilnorstuv laefijnostu mabeijklnoprsu "
        "nacdefgijkopstuvz obcdfghijklmnprstuvzćčđšž paceijklnorstuć radeghijklmnopstuvzšž sacehijklmnoprtuv "
        "tadehijklmnoprsuv uabcdfgjklmnoprstvzćčšž vaeijklnorsu wi zabdegilmnoruv ćaeinu čaeijklnuv đaeiu "
        "šaeikntvć žadeinu"
    ),
    "hu": (
        "aabcdfghijklmnprstuvxzá babeijklorsuváéíóöúő cabcehikoséí dabdehijklmnoprstuváéíóő ebcdfghijklmnoprstvxzáéíó "
        "faefiortuáéóöüű gabefghijklnorstuvyzáéíóöúőű haehiouáéíöú iabcdefghjklmnoprstvzáíóú jadelortzáéö "
        "kabcefhiklmnorstuáéíóöü labcdefghijklmnorstuvyzáéíóöüő mabefhijklmnoprstuvzáéíóöúű "
        "nabcdefghijklnostuyzáéíóöúüőű obcdfghklmnprstvxz pacefijlnoprstuváéí rabcdefghijklmnoprstuvzáéíóöüőű "
        "sabdefhijklmnoprstuvzáéíóöúüőű tabcefhijklmnorstuvyáéíóöúüőű ubdfgklmnprstá vaeijotuáéíüőű xaity "
        "yabehiklmnorstvzáéíúüőű zabdeghiklmnorstuvzáéíóöúüőű áabcfghjklmnrstuvzí ébcdghjklmnprstvz ícglmnprstvz "
        "óabdfghijklmnprstvz öbdgklmnrstvz úgjlrstz ügklnrstz őbdefhijklnprstvzá űjklnrsvz"
    ),
    "ro": (
        "abcdfgijlmnprstuvxzşţșț baceiloprstuăț cacehilortuvâăț daegimoruă eabcdefgijlmnoprstuvxzîşţșț faeiloruâă "
        "gaehilmnoruă haeiâ iabcdefgilmnoprstuvxzşţșț jaeou labcefginostuvăț mabeinopuâă nacdefgijlorstuvzăţșț "
        "oabcdfgilmnprstuzș paeilorstuâăţț rabcdefghimnopstuvzâășț sacefilmoptuă tadefilmoruâă uabcdefgilmnprstvxzășț "
        "vaeiouâă wai xaceiptuă zadeiouâă âlmnrt îilmn ăcdgilmrstușț şitu ţei șaeintu țaeiă"
    ),
    "tr": (
        "aabcdfghijklmnprstvyzçüğş badeilouöüı caeiruüı dadeiloruöüı ebcdfgklmnprstvyzçğş faeilorstı gaeioruöüı "
        "haeirtüı ibcdfhklmnprstvyzçğş ji kaeiklmorstuçöüı lacdegiklmnostuçüı mabcdegilopsuzüı nabcdegiklmorstuyzüı "
        "odfgklmnprstyzğş paeiklmorstuyı rabcdefghiklmnopstuvzçüış saeiklmnotuyöüı tabefiklmnorstuçüı "
        "ubcdklmnprstvyzçğş vacdeilruy yadefgiklmnorstuöüı zacdegilmnosuyüı çabeilmotuöüı ögklnrsyzğ ücklmnprstvyzçğş "
        "ğaeilmruüı ıcdfklmnprstyzçğş şaeiklmstuvüı"
    ),
    "da": (
        "abcdefgiklmnprstuv babeijlnorstuyåø cacehi dabdefghijklmnoprstuvyåæø eabcdefghijklmnoprstuv "
        "fabefhijklorstuvyåæø gadefghilmnorstuvyåæø haeijouvåæø iabcdefgklmnoprstvx jadelorsuæø kaeijklnorstuvyæø "
        "labdefghijklmnoprstuvyåæéø mabdefghiklmnoprstuvåæø nabcdefghijklnoprstuvyåæø obcdefgklmnprstuv "
        "pabdefghiloprstuåø rabcdefghiklmnoprstuvyåæéø sabcdefghiklmnoprstuvyåæø tabcefhijklmnoprstuvyåæéø "
        "uabcdefgiklmnoprstv vaeilnoståæé wa ybdegklmnprst åbdegklnrsv æbcdfgklmnrstv énrt øbdgjlmnrstv"
    ),
    "sv": (
        "abcdfghiklmnprstuvxy babeijlorstuyäåö cacehik dabdefgijklmnoprstuvyäåö eabcdefghjklmnoprstvx faefijlortuyäåö "
        "gadefghilmnorstuäåö haeijouäåö iabcdefghklmnoprstvx jadelosuäö kaefgijlnoprstuvyäö labdefghijklmnoprstuvyäåö "
        "mabdefgiklmnoprstuväåö nabcdefghijklmnoprstuvyäåö oabcdefgklmnoprstuv padegiklmnoprstuäå "
        "rabdefghijklmnoprstuvyäåö sabcdefghijklmnoprstuvyäåö tabcdefgijklmnoprstuvyäåö uabcdefgklmnprstv "
        "vabdefgiknorstuyäå wi xaefilpt yacdegklmnprst zo äcdfgklmnprstvx ådegklnrstv ödgjklmnprsv"
    ),
    "fi": (
        "aabdefghijklmnoprstuv beijlosu daeiouyä eadeghijklmnoprstuvyä fiou gaeilmnoru hadeijkmotuvyä "
        "iabdeghijklmnoprstuväö jaeiouä kaeikorstuvyäö laegijklmoptuvyäö mabeimopuyä nadeghijklmnoprstuvyäö "
        "oabdefghijklmnoprstuv paeiloprstuyä raeghijkmoprstuvyäö saehiklmnoprstuvyä taeikmorstuyäö uadehijklmnoprstuv "
        "vaeiouyä ydehijklmnprstvyäö äadeghijklmnoprstvyä öhijklmnprstyäö"
    ),
    "vi": (
        "aimnopuy baituyàáêìíóùăưạảấẫậắằệịỏốổộở cahkouàáâòóôùúũơạảấầậắặốổộờỡụủứử daiouàáãòõùưạấầẫịọụứừữự emno "
        "gahiouàáâìóôõăưạầắặọốồỡợửữ haeiouàáâãèéêìíòóôùúĩơưạảấầẩậắẳặẻếểệỉịọỏốồỗộớờởợụủứừửữự iamntáâêúảấếềểễệốớờữ "
        "khiéêíýếỳ laiouàêòúýưạấầẫậặẻẽềệịọỗớờụự maiouàáãóôũạảấẫậặẹềọỗộớởụứỹ naghiàâéêóúăơạằếềốộữ oacinàáạảặ phs qu "
        "raeiouàáãêìíòõùúưạảấắằịọỏốồỗộờởợừữự sailouàáâơạảắẵẻẽốổởửự tacehioruàáâêìíôùăưạảấậắếệốồổớụứừửựỷ "
        "uainyáôảấầẩậốồỗộ viuàáìíòôùăưấẫậẽếềịỏớụừ xaeiouáâéóạảếử ytêếềểệ àimnouy ácinopty âmnuy ãny èn énopt êmnu ìmn "
        "íacmnt òan óacimn ôin õi ùny úcnpt ămn đaiotuáâãèíóôúăĩơưạảầẩậặếềểệịọốồổộợủứừ ĩa ũin ơin ưanuơớờởợ ạcimnopty "
        "ảimnoy ấmnptuy ầmnuy ẩmnuy ẫnuy ậmnptuy ắcmnpt ằmn ẳn ẵn ặcnpt ẹop ếmnptu ềmnu ểmnu ễn ệcmnptu ỉn ịacnu "
        "ọacin ỏin ốcint ồimn ổin ỗin ộcinpt ớcinp ờin ởin ợcinpt ụcnt ủay ứacnt ừan ửai ữanu ựacn"
    ),
}
_FOLLOWERS = {language: {row[0]: frozenset(row[1:]) for row in rows.split()} for language, rows in _PAIRS.items()}
_MIN_LENGTH = 3  # letters of a word whose pairs are judged
_KNOWN_LETTERS = frozenset("".join(_PAIRS.values())) - {" "}
_WORD = re.compile(r"[^\W\d_]+")
_INNER_CAPITAL = re.compile(r"[a-z][A-Z][a-z]")
_IDENTIFIER_PART = re.compile(r"[A-Z]?[a-z]+|[^\W\d_]+")
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
    for token, count in Counter(unicodedata.normalize("NFC", text).split()).items():
        core = token.strip(_EDGES)
        if _ODD_SHAPE.search(core):
            odd += 0 if _is_identifier(core) else count
            continue
        for word in _WORD.findall(core.lower()):
            if len(word) >= _MIN_LENGTH and _KNOWN_LETTERS.issuperset(word):
                words[word] += count
    judged = words.total() + odd
    plausible = max(_count_plausible(words, followers) for followers in _FOLLOWERS.values())
    return (plausible / judged if judged else 1.0), judged


def _is_identifier(token: str) -> bool:
    """Whether the token has inner capitals, like names in programs, and all its parts can be English words."""
    parts = [part.lower() for part in _IDENTIFIER_PART.findall(token)]
    is_english = all(len(part) > 1 and _is_plausible(part, _FOLLOWERS["en"]) for part in parts)
    return is_english and bool(_INNER_CAPITAL.search(token))


def _count_plausible(words: Counter[str], followers: Mapping[str, frozenset[str]]) -> int:
    return sum(count for word, count in words.items() if _is_plausible(word, followers))


def _is_plausible(word: str, followers: Mapping[str, frozenset[str]]) -> bool:
    return all(second in followers.get(first, ()) for first, second in pairwise(word))


# ---- confidence ----

UNCERTAIN_BELOW = 0.85  # score: more than one word in seven is probably wrong
_UNREADABLE_BELOW = 0.4  # score of a layer's words, apart from their structure
_LONG_TEXT = 3000  # characters of one element: a page's text in one piece, whose columns are probably mixed
_VISIBLE_LAYER = 0.89  # not compared with the pixels; 0.995 of the words of files of all kinds were right
_COMPARED_LAYER = 0.98  # some words of its fonts were read from the pixels, and are right
_LYING_LAYER = 0.2  # of fonts that name wrong characters
_HIDDEN_LAYER = 0.6  # the same; OCR by other programs, of any quality
_UNKNOWN_LAYER = 0.85  # it may be visible or hidden; between the two above, not measured
_UNDRAWN = 0.5  # nothing can be compared with it; limit of the score
_LOST_STRUCTURE, _MIXED_ORDER, _NONSENSE = 0.3, 0.5, 0.5  # limits of the score
_ODD = 0.9  # the same, of text that looks odd: it may be in a language that is not known, and right


HEIGHTS = (11, 14, 18, 26, 38)  # pixels of a line, for which the limits are given


@dataclass(frozen=True)
class Calibration:
    """Bounds of OCR's confidence in one script: never below `least`, never above `limits`, which are for lines of
    HEIGHTS and interpolated for others. `letters` are the script's, as in a class of a regular expression.
    """

    letters: str
    limits: tuple[float, ...]
    least: float = 0.0

    def limit(self, line_height: float) -> float:
        """The most in lines of this height, in pixels; in lines of a middle one if it is 0."""
        return float(np.interp(line_height or HEIGHTS[len(HEIGHTS) // 2], HEIGHTS, self.limits))


# `python -m scripts.bench calibration` fits the numbers to drawn scans, but for Korean: 0.78 to 0.91 of its words are
# right, because of spaces. Tesseract's score is how alike two readings of different sizes are; where they differ, most
# Thai letters are right all the same. Numbers for other scripts, and heights for Thai, made nothing better on scans in
# other fonts; nor did heights for Arabic, of which one scan in other fonts is small, and 4 of 44 others.
_CALIBRATIONS = (
    Calibration("\u0370-\u03ff\u1f00-\u1fff", (0.8, 0.82, 0.88, 0.9, 0.9)),
    Calibration(prose.HANGUL, (0.85,) * len(HEIGHTS)),
    Calibration("\u0600-\u06ff\u0750-\u077f\ufb50-\ufdff\ufe70-\ufefc", (0.66, 0.7, 0.94, 0.94, 0.96)),
    Calibration("\u0e00-\u0e7f", (1.0,) * len(HEIGHTS), least=0.84),
)
ANY_SCRIPT = Calibration("", (1.0,) * len(HEIGHTS))

# Shares of plausible words: below the first, text is noise, below the second, it looks odd. Clean pages have 0.75-1.00.
_IMPLAUSIBLE, SUSPICIOUS = 0.5, 0.74
_MIN_WORDS = 20  # needed to say so

# (evidence, score), interpolated in between.
_BY_AGREEMENT = (
    (0.3, 0.1),
    (0.6, 0.4),
    (0.73, 0.5),
    (0.82, 0.72),
    (0.9, 0.85),
    (0.95, 0.93),
    (0.98, 0.96),
    (1.0, 0.99),
)
_BY_RECOGNISER = (
    (0.55, 0.1),
    (0.75, 0.3),
    (0.83, 0.5),
    (0.88, 0.65),
    (0.92, 0.77),
    (0.95, 0.8),
    (0.967, 0.88),
    (0.975, 0.92),
    (0.985, 0.97),
    (0.993, 0.985),
    (1.0, 0.99),
)


@dataclass(frozen=True)
class Evidence:
    """What is known about an element's text.

    `agreement` is that of layer and pixels, `recogniser` the mean score of OCR; None where there is none. `is_compared`
    means that words in its fonts were read from the pixels, `lies` that one of its fonts names wrong characters.
    `is_across` means that its lines probably run across columns, `plausibility` is the share of its words that can be
    words of its language, 1 where too few are judged. `calibration` is that of its script. `line_height` is in pixels,
    0 where it is not known.
    """

    length: int
    agreement: float | None = None
    recogniser: float | None = None
    is_hidden: bool = False
    is_compared: bool = False
    lies: bool = False
    is_flat_formula: bool = False
    is_across: bool = False
    plausibility: float = 1.0
    calibration: Calibration = ANY_SCRIPT
    line_height: float = 0.0


def find_calibration(text: str) -> Calibration:
    """That of the script of most letters."""
    letters = "".join(filter(str.isalpha, text))
    found = (own for own in _CALIBRATIONS if 2 * len(re.findall(f"[{own.letters}]", letters)) > len(letters))
    return next(found, ANY_SCRIPT)


def weigh_plausibility(text: str) -> float:
    """The share of plausible words; 1 where too few are judged."""
    plausibility, words = measure_plausibility(text)
    return plausibility if words >= _MIN_WORDS else 1.0


def judge(evidence: Evidence) -> tuple[Confidence, tuple[Flag, ...]]:
    """The confidence, and the flags of a low one."""
    score, method = _judge_words(evidence)
    if evidence.recogniser is not None:
        least, most = evidence.calibration.least, evidence.calibration.limit(evidence.line_height)
        score = min(max(score, least), most)
    if evidence.plausibility < SUSPICIOUS:
        is_noise = evidence.plausibility < _IMPLAUSIBLE and evidence.recogniser is not None
        score = min(score, _NONSENSE if is_noise else _ODD)  # the recogniser is sure of letters, not of words
    # OCR that is unsure leaves out what it cannot read; a layer may be noise.
    flags = (Flag.UNREADABLE,) if score < _UNREADABLE_BELOW and evidence.recogniser is None else ()
    if evidence.is_flat_formula and score > _LOST_STRUCTURE:
        score, method = _LOST_STRUCTURE, ConfidenceMethod.LOST_STRUCTURE
    elif (evidence.length > _LONG_TEXT or evidence.is_across) and score > _MIXED_ORDER:
        score, method = _MIXED_ORDER, ConfidenceMethod.MIXED_ORDER
    flags = (*flags, Flag.UNCERTAIN) if score < UNCERTAIN_BELOW else flags
    return Confidence(score=round(score, 4), method=method), flags


def judge_ocr(text: str, score: float) -> tuple[Confidence, tuple[Flag, ...]]:
    """The same for text of which only the recogniser's score is known."""
    return judge(Evidence(length=len(text), recogniser=score, calibration=find_calibration(text)))


def judge_unknown_layer(text: str) -> tuple[Confidence, tuple[Flag, ...]]:
    """The same for a page's text layer that was used because nothing else could be read, and never compared."""
    plausibility = weigh_plausibility(text)
    is_noise = plausibility < _IMPLAUSIBLE
    score = round(_UNKNOWN_LAYER * plausibility, 4) if is_noise else _UNKNOWN_LAYER
    confidence = Confidence(score=score, method=ConfidenceMethod.UNKNOWN_LAYER)
    return confidence, (Flag.UNREADABLE, Flag.UNCERTAIN) if is_noise else ()


def judge_undrawn(confidence: Confidence | None) -> Confidence:
    """The confidence of text that the page does not show, because its font draws nothing."""
    score = min(_UNDRAWN, confidence.score) if confidence else _UNDRAWN
    return Confidence(score=score, method=ConfidenceMethod.UNKNOWN_LAYER)


def _judge_words(evidence: Evidence) -> tuple[float, ConfidenceMethod]:
    if evidence.recogniser is not None:
        return interpolate(_BY_RECOGNISER, evidence.recogniser), ConfidenceMethod.OCR
    if evidence.lies:
        return _LYING_LAYER, ConfidenceMethod.CHECKED_LAYER
    if evidence.agreement is not None:
        return interpolate(_BY_AGREEMENT, evidence.agreement), ConfidenceMethod.CHECKED_LAYER
    if evidence.is_hidden:
        return _HIDDEN_LAYER, ConfidenceMethod.HIDDEN_LAYER
    if evidence.is_compared:
        return _COMPARED_LAYER, ConfidenceMethod.CHECKED_LAYER
    return _VISIBLE_LAYER, ConfidenceMethod.TEXT_LAYER


def interpolate(table: tuple[tuple[float, float], ...], value: float) -> float:
    """The score at `value`, on straight lines between the table's points; the first and last score beyond them."""
    values, scores = zip(*table, strict=True)
    return float(np.interp(value, values, scores))

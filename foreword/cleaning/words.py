"""Words and sentences of a text, split once for all steps that count them.

datatrove's blocks take a `WordTokenizer` in place of a language, and keep the words of the latest
texts, so those that read the same text share them.

A word is split as spaCy splits English: what lies between spaces loses the punctuation before it
and after it, mark by mark, and is cut at hyphens, slashes and commas between letters. Most of what
lies between spaces was seen before, and what became of it is remembered.

All four filters together run at 1.8 MB/s a core, with spaCy at 0.13. Verdicts near a threshold may
differ: on 2,969 articles of Simple English Wikipedia 99.63 % agree (benchmarks/RESULTS.md).
"""

from __future__ import annotations

import re
from typing import Any

from datatrove.utils.text import split_into_words
from datatrove.utils.word_tokenizers import WordTokenizer

from foreword.text import words
from foreword.text.sentences import ENDS

REMEMBERED = 200_000  # distinct strings between spaces

# Abbreviations that keep their period, besides initials (J. and U.S.) and single letters.
ABBREVIATED = """
Mr Mrs Ms Dr St Mt Jr Sr Messrs Prof Rev Gen Gov Rep Sen Adm Bros Co Corp Inc Ltd Ph.D vs v.s
e.g i.e a.m p.m E.G I.E E.g I.e Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec
Ala Ariz Ark Calif Colo Conn Del Fla Ga Ill Ind Kan Kans Ky La Mass Md Mich Minn Miss Mo Mont
Neb Nebr Nev Okla Ore Pa Tenn Va Wash Wis
"""
ABBREVIATIONS = frozenset(f"{word}." for word in ABBREVIATED.split())
NOT = "ai are ca could dare did do does had has have is may might must need ought sha should was"
CONTRACTED = re.compile(
    rf"""
    (?:{"|".join([*NOT.split(), "were", "wo", "would"])})(?=n['’]t\Z|nt\Z)
    | (?:i|you|he|she|it|we|they|who|what|when|where|why|how|there|that|let|not)(?=['’])
    | (?:could|might|must|should|would)(?=['’]ve\Z)
    | can(?=not\Z) | gon(?=na\Z) | got(?=ta\Z)
    """,
    re.X | re.I,
)
CLITIC = re.compile(r"\A['’](?:s|re|ve|ll|d|m|em|cause)\Z", re.I)
QUOTES = "'\"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉"
MARKS = "…,:;!?¿؟¡()\\[\\]{}<>_#*&。？！，、；：～·।،۔؛٪" + QUOTES
CURRENCY = "$£€¥฿₽₴₩₹₺"
LETTER, LETTER_END = r"[^\W\d_]", rf"(?:[^\W\d_]|[{words.MARKS}])"
HYPHEN = r"(?:--+|——|[-–—~])"
UNITS = (
    "km²|km³|km/h|km|mm²|mm³|mm|cm²|cm³|cm|dm|m²|m³|m/s|mph|mbar|mb|MB|mg|m|ha|µm|nm|yd|in|ft|kg|kb"
    "|KB|gb|GB|g|µg|t|lb|oz|hPa|Pa|tb|TB|T|G|M|K|%"
)
BEFORE = re.compile(rf"\.\.+|[§%=—–{MARKS}{CURRENCY}]|\+(?!\d)")
AFTER = re.compile(
    rf"""
    (?: ['’][sS] | \.\.+ | [—–{MARKS}] | (?<=\d)(?:\+|[{CURRENCY}]|{UNITS})
      | (?<=[\d%²+{MARKS}-])\. | (?<={LETTER_END})(?<![A-ZÀ-ÞА-Я])\. | (?<=[A-ZÀ-ÞА-Я]{{2}})\. )\Z
    """,
    re.X,
)
WITHIN = re.compile(
    rf"""
    ( \.\.+ | … | (?<=\d)[+*^-](?=[\d-])
      | (?<={LETTER_END})(?<![A-ZÀ-ÞА-Я])\.(?=[A-ZÀ-ÞА-Я"”“]) | (?<={LETTER_END}),(?={LETTER})
      | (?<=[\w{words.MARKS}])(?<!_){HYPHEN}(?={LETTER})
      | (?<=[\w{words.MARKS}])(?<!_)[:<>=/](?={LETTER}) )
    """,
    re.X,
)
ADDRESS = re.compile(
    r"\A(?:\w+://\S+|www\.\S+|\S+@[\w-]+(?:\.[\w-]+)+|[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|edu|gov)"
    r"(?:/\S*)?)\Z"
)
INITIAL = "A-Za-zÀ-ɏЀ-ӿ"
SENTENCE_END = re.compile(rf"(?<!\b[{INITIAL}])[{ENDS}]+(?:[^\w\s]*\s+(?=\S)|(?<=[。！？])(?=\S))")
LAST_WORD = re.compile(r"\S+(?=\s*\Z)")


class Words(WordTokenizer):  # type: ignore[misc]
    """A splitter by patterns, many times as fast as datatrove's for each language."""

    def __init__(self) -> None:
        super().__init__()
        self._cache: dict[str, list[str]] = {}

    def word_tokenize(self, text: str) -> list[str]:
        """Return the words of a text, punctuation included."""
        found: list[str] = []
        cache = self._cache
        for string in text.split():
            parts = cache.get(string)
            if parts is None:
                parts = _split(string)
                if len(cache) >= REMEMBERED:
                    cache.clear()
                cache[string] = parts
            found += parts
        return found

    def sent_tokenize(self, text: str) -> list[str]:
        """Return the sentences of a text."""
        return [text[start:end].strip() for start, end in self.span_tokenize(text)]

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        """Return the first character and the end of each sentence."""
        ends = []
        for match in SENTENCE_END.finditer(text):
            last = LAST_WORD.search(text, max(0, match.end() - 12), match.end())
            if last is None or last[0] not in ABBREVIATIONS:
                ends.append(match.end())
        if text[ends[-1] if ends else 0 :].strip():
            ends.append(len(text))
        return list(zip([0, *ends], ends, strict=False))


def _split(string: str) -> list[str]:
    """Return the words of what lies between spaces."""
    before: list[str] = []
    after: list[str] = []
    middle: list[str] = []
    while string:
        if string in ABBREVIATIONS or CLITIC.match(string) or ADDRESS.match(string):
            middle = [string]
            break
        if (match := CONTRACTED.match(string)) and "'" not in string[:1]:
            rest = string[match.end() :]
            if CLITIC.match(rest) or rest.lower() in ("n't", "n’t", "nt", "not", "na", "ta"):
                middle = [match[0], rest]
                break
        if match := BEFORE.match(string):
            before.append(match[0])
            string = string[match.end() :]
        elif (match := AFTER.search(string)) and match.start():
            after.append(match[0])
            string = string[: match.start()]
        else:
            middle = [piece for piece in WITHIN.split(string) if piece]
            break
    parts = [*before, *middle, *reversed(after)]
    if not words.is_unspaced("".join(middle)):
        return parts
    return words.spaced(" ".join(parts)).split()


WORDS: Any = Words()


def count_words(text: str) -> int:
    """Return the number of words of a text, punctuation included."""
    return len(split_into_words(text, WORDS))

"""English verb and noun forms for the rewrite rules: regular endings plus a table of irregular verbs."""

from __future__ import annotations

import re
from collections.abc import Callable

# base: (past, participle)
IRREGULAR = {
    "be": ("was", "been"),
    "bear": ("bore", "born"),
    "beat": ("beat", "beaten"),
    "become": ("became", "become"),
    "begin": ("began", "begun"),
    "break": ("broke", "broken"),
    "bring": ("brought", "brought"),
    "build": ("built", "built"),
    "buy": ("bought", "bought"),
    "catch": ("caught", "caught"),
    "choose": ("chose", "chosen"),
    "come": ("came", "come"),
    "cut": ("cut", "cut"),
    "do": ("did", "done"),
    "draw": ("drew", "drawn"),
    "drink": ("drank", "drunk"),
    "drive": ("drove", "driven"),
    "eat": ("ate", "eaten"),
    "feed": ("fed", "fed"),
    "feel": ("felt", "felt"),
    "fight": ("fought", "fought"),
    "find": ("found", "found"),
    "fly": ("flew", "flown"),
    "forget": ("forgot", "forgotten"),
    "get": ("got", "got"),
    "give": ("gave", "given"),
    "go": ("went", "gone"),
    "grow": ("grew", "grown"),
    "have": ("had", "had"),
    "hear": ("heard", "heard"),
    "hide": ("hid", "hidden"),
    "hit": ("hit", "hit"),
    "hold": ("held", "held"),
    "hurt": ("hurt", "hurt"),
    "keep": ("kept", "kept"),
    "know": ("knew", "known"),
    "lead": ("led", "led"),
    "leave": ("left", "left"),
    "lend": ("lent", "lent"),
    "let": ("let", "let"),
    "light": ("lit", "lit"),
    "lose": ("lost", "lost"),
    "make": ("made", "made"),
    "mean": ("meant", "meant"),
    "meet": ("met", "met"),
    "pay": ("paid", "paid"),
    "put": ("put", "put"),
    "read": ("read", "read"),
    "ride": ("rode", "ridden"),
    "run": ("ran", "run"),
    "say": ("said", "said"),
    "see": ("saw", "seen"),
    "sell": ("sold", "sold"),
    "send": ("sent", "sent"),
    "set": ("set", "set"),
    "shoot": ("shot", "shot"),
    "show": ("showed", "shown"),
    "shut": ("shut", "shut"),
    "sing": ("sang", "sung"),
    "speak": ("spoke", "spoken"),
    "spend": ("spent", "spent"),
    "spread": ("spread", "spread"),
    "steal": ("stole", "stolen"),
    "strike": ("struck", "struck"),
    "take": ("took", "taken"),
    "teach": ("taught", "taught"),
    "tell": ("told", "told"),
    "think": ("thought", "thought"),
    "throw": ("threw", "thrown"),
    "understand": ("understood", "understood"),
    "wear": ("wore", "worn"),
    "win": ("won", "won"),
    "write": ("wrote", "written"),
}
IRREGULAR_PASTS = {form for forms in IRREGULAR.values() for form in forms} - set(IRREGULAR)
BASE_OF_PARTICIPLE = {participle: base for base, (_, participle) in IRREGULAR.items()}
BASE_OF_PAST = {past: base for base, (past, _) in IRREGULAR.items()}
STRESSED_AT_END = {
    "admit",
    "begin",
    "commit",
    "control",
    "emit",
    "forget",
    "occur",
    "permit",
    "prefer",
    "refer",
    "submit",
}
VOWELS = "aeiou"
CONSONANT = f"[^{VOWELS}]"

# Stems of -ed forms that lost an e: locat-, caus-, solv-, produc-, nam-. The first pattern that matches decides.
ENDS_IN_E = (
    (re.compile(r"(creat|complet|combin|defin|determin|examin|imagin|separat|compar|requir|explor|stor|ador)$"), True),
    (re.compile(r"([aeo][aei]t|ss|[aeiou]{2}[dklmnpr]|fer|open|happen|visit|limit|edit|develop|cover|focus)$"), False),
    (re.compile(r"(at|ibut|itut|put|um|ud|bl|iz|is|c|v|u|[aeiou]s|ns|rs|[dnr]g|ag|gl|dl|tl|pl|tur|sur|ir|ib)$"), True),
    (re.compile(rf"^{CONSONANT}*[{VOWELS}][bdgklmnprt]$"), True),
)


def base_form(verb: str) -> str:
    """Return the infinitive of a third-person or plural present form: "prevents" -> "prevent", "flies" -> "fly"."""
    if verb in ("is", "are"):
        return "be"
    if verb in ("has", "does", "goes"):
        return {"has": "have", "does": "do", "goes": "go"}[verb]
    if verb.endswith("ies") and len(verb) > 4:
        return verb[:-3] + "y"
    if re.search(r"(s|x|z|ch|sh)es$", verb) and not verb.endswith(("ases", "oses", "uses", "ises")):
        return verb[:-2]
    return verb[:-1] if is_third_person(verb) else verb


def is_third_person(verb: str) -> bool:
    return verb.endswith("s") and not verb.endswith("ss")


def third_person(verb: str) -> str:
    """Return the -s form of an infinitive: "prevent" -> "prevents", "carry" -> "carries"."""
    if verb in ("be", "have"):
        return {"be": "is", "have": "has"}[verb]
    if re.search(rf"{CONSONANT}y$", verb):
        return verb[:-1] + "ies"
    return verb + ("es" if re.search(r"(s|x|z|ch|sh|o)$", verb) else "s")


def doubles(base: str) -> bool:
    """Return whether the last letter doubles before a vowel: stop, plan; not visit, need, show."""
    return base in STRESSED_AT_END or re.fullmatch(rf"{CONSONANT}*[{VOWELS}][bdgklmnprt]", base) is not None


def past(base: str) -> str:
    return IRREGULAR[base][0] if base in IRREGULAR else regular_past(base)


def participle(base: str) -> str:
    return IRREGULAR[base][1] if base in IRREGULAR else regular_past(base)


def regular_past(base: str) -> str:
    if base.endswith("e"):
        return base + "d"
    if re.search(rf"{CONSONANT}y$", base):
        return base[:-1] + "ied"
    return base + (base[-1] if doubles(base) else "") + "ed"


def gerund(base: str) -> str:
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")) and base != "be":
        return base[:-1] + "ing"
    return base + (base[-1] if doubles(base) else "") + "ing"


def base_of_participle(word: str) -> str:
    """Return the infinitive of a participle: "produced" -> "produce", "written" -> "write"."""
    if word in BASE_OF_PARTICIPLE:
        return BASE_OF_PARTICIPLE[word]
    if word.endswith("ied"):
        return word[:-3] + "y" if len(word) > 4 else word[:-1]
    stem = word[:-2]
    if stem[:-1] in STRESSED_AT_END:
        return stem[:-1]
    if re.search(rf"({CONSONANT})\1$", stem) and not stem.endswith(("ss", "ll", "zz", "ff", "dd")):
        return stem[:-1]
    return stem + "e" if lost_an_e(stem) else stem


def lost_an_e(stem: str) -> bool:
    return next((is_lost for pattern, is_lost in ENDS_IN_E if pattern.search(stem)), False)


def plural(noun: str) -> str:
    """Return the plural of a noun phrase's last word: "potential risk" -> "potential risks"."""
    return noun if is_third_person(noun) else third_person(noun)


FORMS: dict[str, Callable[[str], str]] = {
    "": str,
    "base": base_form,
    "third": lambda verb: third_person(base_form(verb)),
    "gerund": lambda verb: gerund(base_form(verb)),
    "participle": lambda verb: participle(base_form(verb)),
    "active base": base_of_participle,
    "active third": lambda word: third_person(base_of_participle(word)),
    "active past": lambda word: past(base_of_participle(word)),
    "past participle": lambda word: participle(BASE_OF_PAST.get(word) or base_of_participle(word)),
    "plural": plural,
    "bare": lambda phrase: re.sub(r"^(?:an?|the|some|any|every|each) ", "", phrase),
}


class Word(str):
    """A word that `format` can inflect: `"{verb:participle}"`. The forms are the keys of FORMS."""

    __slots__ = ()

    def __format__(self, form: str) -> str:
        return FORMS[form](str(self))

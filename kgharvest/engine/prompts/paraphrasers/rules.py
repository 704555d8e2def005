"""Paraphrase rules: the data files in this folder and the rewording of prompts.

grammar.toml contains the vocabulary of the patterns. rewrites.txt and general_rewrites.txt change the syntax.
restatements.txt contains questions with answers and other wordings of any clause.
synonyms.toml replaces words, which lemminflect inflects. relation_wordings.txt and fact_wordings.txt list wordings of
common relations. Each file explains its format at the top. Files are read at first use.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain, islice, product
from pathlib import Path
from typing import Any, NamedTuple

from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.prompts.template import PromptTemplate

FOLDER = Path(__file__).parent
WORDING_FILES = ("relation_wordings.txt", "fact_wordings.txt")
ONLY_SAID, ONLY_RECOGNIZED = "> ", "< "
MAX_REWRITES = 60  # per prompt; the LM scores every rewrite
NEVER = r"(?!)"


def rewritten(prompt: PromptTemplate) -> list[PromptTemplate]:
    """Return up to MAX_REWRITES different wordings of `prompt`, without a frame around it.

    Order: wordings of known relations, rewrites.txt, synonyms, general_rewrites.txt, and synonyms in the wordings from
    the first two sources. If a clause already has an emphasized part, no emphasis is added. A wording ends in a
    preposition only if `prompt` does.
    """
    clause = expanded(bare_clause(prompt))
    adverbial, main = without_adverbial(clause)
    wordings = [*relation_wordings(clause), *(adverbial + text for text in relation_wordings(main))]
    rewrites = read_rewrites("rewrites.txt")
    ordinary = [*(adverbial + text for text in (*applied(rewrites, main), main)), *applied(rewrites, clause)]
    general = list(applied(read_rewrites("general_rewrites.txt"), clause))
    if named_pattern("emphasis").search(clause) or is_imperative(clause):
        ordinary, general = [text for text in ordinary if not named_pattern("emphasis").search(text)], []
    synonymous = list(with_synonyms(clause))
    mixed = [text for rewrite in wordings + ordinary for text in islice(with_synonyms(rewrite), 1)]
    texts = dict.fromkeys([clause, *wordings, *ordinary, *synonymous, *general, *mixed])
    original = expanded(clause_of(prompt))
    strands = named_pattern("stranded_preposition").fullmatch
    new_texts = [text for text in texts if text != original and (strands(original) or not strands(text))]
    return [prompt_of(text) for text in new_texts][:MAX_REWRITES]


def restated(prompt: PromptTemplate) -> list[PromptTemplate]:
    """Return general wordings of a clause, such as a question with its answer, from restatements.txt."""
    clause = expanded(bare_clause(prompt))
    if named_pattern("emphasis").search(clause) or is_imperative(clause):
        return []
    return [prompt_of(text) for text in dict.fromkeys(applied(read_rewrites("restatements.txt"), clause))]


def framed(prompt: PromptTemplate) -> list[PromptTemplate]:
    """Return each frame with the clause of `prompt` inserted, or [] for an imperative, which fits in no frame."""
    clause = bare_clause(prompt)
    return [] if is_imperative(clause) else [prompt_of(frame.format(clause=clause)) for frame in frames()]


def is_about_place(prompt: PromptTemplate) -> bool:
    return named_pattern("place_word").search(prompt.text) is not None


# Data files


@cache
def read_toml(name: str) -> dict[str, Any]:
    return tomllib.loads((FOLDER / name).read_text(encoding="utf-8"))


@cache
def read_blocks(name: str) -> tuple[tuple[str, ...], ...]:
    """Return the blocks of lines in a text file, without comment lines. Blocks are separated by blank lines."""
    lines = (FOLDER / name).read_text(encoding="utf-8").splitlines()
    text = "\n".join(line for line in lines if not line.startswith("#"))
    return tuple(tuple(block.splitlines()) for block in re.split(r"\n{2,}", text.strip("\n")))


def words_in(name: str) -> list[str]:
    """Return a word list from grammar.toml."""
    words: list[str] = read_toml("grammar.toml")[name].split()
    return words


def frames() -> list[str]:
    templates: list[str] = read_toml("grammar.toml")["frames"]
    return templates


@cache
def frame_patterns() -> list[re.Pattern[str]]:
    return [re.compile(re.escape(frame).replace(r"\{clause\}", "(?P<clause>.*)")) for frame in frames()]


@cache
def irregular_pasts() -> frozenset[str]:
    """Return the past forms and participles of irregular verbs, except forms that are also infinitives."""
    verbs = words_in("irregular_verbs")
    return frozenset(inflected(verb, form) for verb in verbs for form in ("past", "participle")).difference(verbs)


@cache
def fragments() -> dict[str, str]:
    """Return the pattern that each {:name} reference stands for."""
    grammar = read_toml("grammar.toml")
    verbs = words_in("irregular_verbs")
    forms = {
        "irregular_past": {inflected(verb, "past") for verb in verbs}.difference(words_in("ambiguous_pasts")),
        "irregular_participle": {inflected(verb, "participle") for verb in verbs},
    }
    for form, lists in grammar["verb_forms"].items():
        tags = ("VB", "VBZ", "VBD", "VBN") if form == "any" else (VERB_TAGS[form],)
        for name, bases in lists.items():
            forms[name] = {spelling for base in bases.split() for tag in tags for spelling in spellings(base, tag)}
    patterns = grammar["parts"] | grammar["fragments"] | read_toml("synonyms.toml")["fragments"]
    return {
        name: value if isinstance(value, str) else "|".join(sorted(value)) for name, value in (patterns | forms).items()
    }


def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern. {name}: a part that wordings can use. {:name}: a part or fragment without a named group."""

    def expand(reference: re.Match[str]) -> str:
        group = "(?:" if reference[1] else f"(?P<{reference[2]}>"
        return group + re.sub(r"\{(:)([a-z_]+)\}", expand, fragments()[reference[2]]) + ")"

    return re.compile(re.sub(r"\{(:?)([A-Za-z_]+)\}", expand, pattern))


@cache
def named_pattern(name: str) -> re.Pattern[str]:
    return compiled(read_toml("grammar.toml")["patterns"][name])


# Rewrites


@dataclass(frozen=True)
class Rewrite:
    """A rule: a clause that matches `pattern` completely can be replaced by any of `wordings`.

    words: words in every matching clause. Compiling a pattern takes longer than looking for its words.
    """

    name: str
    pattern: str
    wordings: tuple[str, ...]
    words: frozenset[str] = frozenset()

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return compiled(self.pattern)

    def match(self, clause: str) -> re.Match[str] | None:
        return self.regex.fullmatch(clause) if self.words.issubset(words_of(clause)) else None

    def apply(self, clause: str) -> Iterator[str]:
        match = self.match(clause)
        if match is not None:
            parts = {
                name: Word(text) for name, text in (read_toml("grammar.toml")["defaults"] | match.groupdict()).items()
            }
            yield from (wording.format_map(parts) for wording in self.wordings)


def words_of(clause: str) -> list[str]:
    return re.findall("[A-Za-z]+", clause)


def applied(rules: Iterable[Rewrite], clause: str) -> Iterator[str]:
    return chain.from_iterable(rule.apply(clause) for rule in rules)


@cache
def read_rewrites(name: str) -> tuple[Rewrite, ...]:
    rules = ((head.split(": ", 1), tuple(map(str.strip, wordings))) for head, *wordings in read_blocks(name))
    return tuple(Rewrite(rule, pattern, wordings) for (rule, pattern), wordings in rules)


@cache
def relation_rewrites() -> tuple[Rewrite, ...]:
    return tuple(rule for name in WORDING_FILES for block in read_blocks(name) for rule in wording_rules(block))


def wording_rules(block: Iterable[str]) -> Iterator[Rewrite]:
    """Yield a rule for each recognized line of a block of wordings."""
    lines = list(block)
    outputs = [line.removeprefix(ONLY_SAID) for line in lines if not line.startswith(ONLY_RECOGNIZED)]
    for line in lines:
        if not line.startswith(ONLY_SAID):
            wording = line.removeprefix(ONLY_RECOGNIZED)
            # Slots must be tags during synonym replacement because the guards of synonyms match tags.
            tagged = re.sub(r"\{([ABC])(?::bare)?\}", lambda part: f"<ENT{'ABC'.index(part[1])}>", wording)
            pattern = re.sub(r"<ENT(\d)>", lambda slot: f"{{{'ABC'[int(slot[1])]}}}", with_heads(tagged))
            pattern = re.sub(r",? (?=\{)", lambda gap: ",? " if "," in gap[0] else " ", pattern)
            pattern = re.sub(r"\bpeople\b", "{:anybody}", pattern)
            words = frozenset(words_of(re.sub(r"[a-z]*\{:?[A-Za-z_]+\}", " ", pattern)))
            yield Rewrite(line, pattern, tuple(output for output in outputs if output != wording), words)


def relation_wordings(clause: str) -> Iterator[str]:
    """Yield the wordings of a known relation, with and without class nouns before the slots ("the city of <ENT0>")."""
    heads = with_heads(clause)
    unclassified = named_pattern("classifier").sub("", heads)
    return chain.from_iterable(applied(relation_rewrites(), text) for text in dict.fromkeys((heads, unclassified)))


# Synonyms


class Synonyms(NamedTuple):
    """The words of a synonym group in one inflected form, the head word first, and the contexts that exclude them."""

    words: tuple[str, ...]
    not_before: re.Pattern[str]
    not_after: re.Pattern[str]


@cache
def synonyms() -> dict[str, list[Synonyms]]:
    """Return the synonym groups of each word."""
    data = read_toml("synonyms.toml")
    forms: dict[str, dict[str, Callable[[str], str]]] = {
        "verbs": {form: partial(inflected, form=form) for form in ("base", *VERB_TAGS)},
        "nouns": {"singular": str, "plural": plural},
        "others": {"": str},
    }
    groups: dict[str, list[Synonyms]] = {}
    for kind, inflections in forms.items():
        for group, (form, inflect) in product(data[kind], inflections.items()):
            words = [word for word in group["words"].split(" | ") if not (form == "participle" and " " in word)]
            not_before = f"{group.get('not_before', NEVER)}|{data['not_before'].get(form, NEVER)}"
            not_after = f"(?:{group.get('not_after', NEVER)}|{data['not_after'].get(form, NEVER)})$"
            entry = Synonyms(tuple(map(inflect, words)), compiled(not_before), compiled(not_after))
            for word in entry.words:
                groups.setdefault(word, []).append(entry)
    return groups


@cache
def synonym_pattern() -> re.Pattern[str]:
    longest_first = "|".join(sorted(map(re.escape, synonyms()), key=len, reverse=True))
    return re.compile(rf"(?<![\w<'’-])(?:{longest_first})(?![\w'’-])")


def with_synonyms(clause: str) -> Iterator[str]:
    """Yield `clause` with one word replaced by a synonym that fits its context, for each choice of word and synonym."""
    for match in synonym_pattern().finditer(clause):
        for word in choices(match):
            if word != match.group():
                yield with_article(clause[: match.start()], word) + clause[match.end() :]


def with_heads(clause: str) -> str:
    """Return `clause` after replacing each word that has synonyms in its context by the head word of their group."""
    return synonym_pattern().sub(lambda match: next(iter(choices(match)), match.group()), clause)


def with_article(before: str, word: str) -> str:
    """Return `before` followed by `word`. A final "a" or "an" of `before` is adapted to `word`."""
    article = r"\1n " if named_pattern("vowel_sound").match(word) else r"\1 "
    return re.sub(r"\b([Aa])n? $", article, before) + word


def choices(match: re.Match[str]) -> tuple[str, ...]:
    text = match.string
    for entry in synonyms()[match.group()]:
        if not entry.not_before.match(text, match.end()) and not entry.not_after.search(text[: match.start()]):
            return entry.words
    return ()


# Clauses


def bare_clause(prompt: PromptTemplate) -> str:
    """Return the clause of `prompt` without a frame around it."""
    clause = clause_of(prompt)
    for pattern in (*frame_patterns(), named_pattern("known_frame")):
        if match := pattern.fullmatch(clause):
            clause = match["clause"]
    return clause


def clause_of(prompt: PromptTemplate) -> str:
    """Return the text of `prompt` without its full stop. The first word is in lower case unless it is a name.

    Names are acronyms, uncommon words ("France", but not "Voters"), words capitalized elsewhere in the prompt, and
    words before another capitalized word ("Marie Curie").
    """
    text = prompt.text.rstrip(" .")
    first = re.match(r"[^\W\d_]+(?:['’][a-z]+)?", text)
    return text if first is None or is_name(first[0], text[first.end() :]) else text[0].lower() + text[1:]


def is_name(first: str, rest: str) -> bool:
    """Return whether `first`, the first word of a sentence that continues with `rest`, is a name."""
    if first in ("A", "An", "The"):
        return False
    from lemminflect import getAllLemmas

    word = re.split("['’]", first)[0]
    lemmas = getAllLemmas(word.lower(), "NOUN").get("NOUN", (word.lower(),))  # "voters" -> "voter"
    is_common = bool({first.lower(), word.lower()} & (common_words() | imperatives())) or word.lower() not in lemmas
    if word == "I" or not first[1:].islower() or not is_common:
        return True
    return bool(re.match(" [A-Z][a-z]", rest) or re.search(rf"\b{first}\b", rest))


@cache
def common_words() -> frozenset[str]:
    """Return words that are not names: stop words and the words of the data files."""
    wordings = " ".join(line for name in WORDING_FILES for block in read_blocks(name) for line in block)
    phrases = (phrase for entries in synonyms().values() for entry in entries for phrase in entry.words)
    words = chain(re.findall(r"\b[a-z]+\b", wordings), words_in("common_words"), words_in("irregular_verbs"))
    return frozenset(STOP_WORDS).union(words, *map(str.split, phrases))


@cache
def imperatives() -> frozenset[str]:
    return frozenset(words_in("imperatives")).union(words_in("irregular_verbs"))


def is_imperative(clause: str) -> bool:
    return clause.split(maxsplit=1)[0] in imperatives()


def expanded(clause: str) -> str:
    """Return `clause` without contractions: "isn't" -> "is not"."""
    for contraction, full in read_toml("grammar.toml")["contractions"]:
        clause = re.sub(contraction, full, clause)
    return clause


def without_adverbial(clause: str) -> tuple[str, str]:
    """Return an adverbial of `clause`, formatted to start a sentence, and the rest of `clause`.

    The adverbial is "" if there is none.
    """
    if match := named_pattern("leading_adverbial").fullmatch(clause):
        return match["adverbial"], match["main"]
    if match := named_pattern("inner_adverb").fullmatch(clause):
        return f"{match['adverb']}, ", f"{match['before']} {match['after']}"
    if match := named_pattern("trailing_adverbial").fullmatch(clause):
        return f"{match['adverbial']}, ", match["main"]
    return "", clause


def prompt_of(clause: str) -> PromptTemplate:
    """Return `clause` as a prompt: capitalized, with a full stop, and with verbs that agree with plural slots."""

    def agreeing(match: re.Match[str]) -> str:
        return f"{match[1]} {({'is': 'are', 'was': 'were'}).get(match[2]) or base_form(match[2])}"

    clause = named_pattern("plural_subject").sub(agreeing, clause)
    clause = named_pattern("plural_possessor").sub(r"\1 their", clause).replace("s's ", "s' ")
    return PromptTemplate.parse(f"{capitalized(clause)} .")


def capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


# English verb and noun forms, from the dictionary and rules of lemminflect


VERB_TAGS = {"third": "VBZ", "past": "VBD", "participle": "VBN", "gerund": "VBG"}
# lemminflect lists the American "gotten" and the rarer "lighted" first.
PREFERRED = {("get", "VBN"): "got", ("light", "VBN"): "lit"}


@cache
def base_form(verb: str) -> str:
    """Return the infinitive of a verb form: "prevents" -> "prevent", "written" -> "write"."""
    from lemminflect import getLemma  # the first call loads the dictionary

    return str(getLemma(verb, "VERB")[0])


@cache
def spellings(base: str, tag: str) -> tuple[str, ...]:
    """Return all spellings of the form of `base` with a Penn Treebank tag, the preferred spelling first."""
    from lemminflect import getInflection

    forms = getInflection(base, tag)
    return tuple(dict.fromkeys([PREFERRED.get((base, tag), forms[0]), *forms]))


def inflected(base: str, form: str) -> str:
    """Return a form of a verb. The rest of its phrase is unchanged: ("give rise to", "third") -> "gives rise to"."""
    verb, *rest = base.split(" ")
    return " ".join([verb if form == "base" else spellings(verb, VERB_TAGS[form])[0], *rest])


@cache
def plural(phrase: str) -> str:
    """Return the plural of a noun phrase: "root cause" -> "root causes", "place of work" -> "places of work"."""
    from lemminflect import getAllLemmas

    head, of, rest = phrase.partition(" of ")
    before, space, noun = head.rpartition(" ")
    singulars = getAllLemmas(noun, "NOUN").get("NOUN", ())
    if noun not in singulars if singulars else noun.endswith("s"):
        return phrase
    return before + space + (noun + "s" if noun[-1].isupper() else spellings(noun, "NNS")[0]) + of + rest


class Word(str):
    """A word or phrase that `format` can inflect: `"{verb:participle}"`.

    Formats: base and the keys of VERB_TAGS (of any verb form), plural (of a noun phrase), bare (without determiner).
    """

    __slots__ = ()

    def __format__(self, form: str) -> str:
        if form == "plural":
            return plural(self)
        if form == "bare":
            return re.sub(r"^(?:an?|the|some|any|every|each) ", "", self)
        return inflected(base_form(self), form) if form else str(self)

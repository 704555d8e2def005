"""Rewrites of clauses of any make, as data; rewriting.py says how to read them.

Alternations of English syntax that keep the meaning: clefts, fronting, passives, inversion (Huddleston and Pullum 2002,
"The Cambridge Grammar of the English Language", chapter 16). They come after the rules for known makes
(rewrite_rules.py), which read better.
"""

from __future__ import annotations

from kgharvest.engine.prompts.paraphrasers.rewrite_rules import WITH_ATTRIBUTE
from kgharvest.engine.prompts.paraphrasers.rewriting import Rewrite

# Nothing can be taken out of a clause that begins with one of these, or out of a list.
NO_ISLAND = (
    r"(?!to )"
    r"(?:(?!\b(?:when|if|because|while|although|though|that|which|who|where|what|than|as|and|or|but|it|there)\b|,|"
    r"\b(?:is|are|was|were) (?:the|an?) ).)+?"
)
NO_CONJUNCTION = (
    r"(?:(?!\b(?:when|whenever|if|because|while|although|though|where|but)\b| (?:and|or) (?!(?:an? |the )?<ENT)).)+"
)
# What makes a clause of an entity and what follows: "people believe <ENT0> prevents", "is", "can".
FINITE = r"(?:(?!as\b|always\b|sometimes\b|its\b)[a-z]+s|are|were|can|could|may|might|will|would|should|must|had)\b"
# Verbs of giving and going, whose "to" names who or where, and of comparing: no purpose.
TO_SOMETHING = (
    r"(?:g[ai]ve(?:s|n)?|sen[dt]s?|sells?|sold|brings?|brought|leads?|led|shows?|showed|offers?(?:ed)?|hand(?:s|ed)?|"
    r"pass(?:es|ed)?|pays?|paid|owes?|owed|lends?|lent|donate[sd]?|dedicate[sd]?|devote[sd]?|attribute[sd]?|"
    r"link(?:s|ed)?|connect(?:s|ed)?|tie[sd]?|attach(?:es|ed)?|deliver(?:s|ed)?|export(?:s|ed)?|ship(?:s|ped)?|"
    r"turn(?:s|ed)?|transfer(?:s|red)?|move[sd]?|carr(?:y|ies|ied)|spread(?:s)?|transmit(?:s|ted)?|relate[sd]?|"
    r"explain(?:s|ed)?|present(?:s|ed)?|supply|supplie[sd]|award(?:s|ed)?|grant(?:s|ed)?|expose[sd]?|add(?:s|ed)?|"
    r"fl(?:y|ies|ew)|drives?|drove|follow(?:s|ed)?|compare[sd]?|prefer(?:s|red)?|introduce[sd]?|invite[sd]?|"
    r"marr(?:y|ies|ied)|wr[io]tes?|reduce[sd]?|lost|loses?)"
)
# Nouns that ask for an infinitive: "the ability to fly" has no purpose in it.
NO_TASK = r"(?!(?:ability|capacity|reason|way|place|chance|right|time|step|desire|wish|need|job|moment|power)\b)"
NO_COPULA = r"(?<! is)(?<! was)(?<! are)(?<! were)"
LEADS_TO = r"(?:lead|leads|go|goes|belong|belongs|travel|travels|come|comes|move|moves|refer|refers|flee|return)"
PLACE_OR_MEANS = r"(?P<prep>in|at|on|from|with|for|among|without|during|near|inside|through)"
PEOPLE = r"(?:people|you|we|many people|most people|tourists|customers|families|children|doctors|workers)"

# What takes the last entity of a clause as its object: a preposition, or a verb by its ending or by what it follows.
TAKES_OBJECT = (
    r"\b(?<!just )(?:"
    r"in|on|at|for|from|with|through|after|into|about|against|under|over|via|between|during|by|without|near|"
    r"(?!(?:is|was|as|its|this|less|towards|called|named|known)\b)[a-z]+(?:s|ed)|"
    rf"(?:{PEOPLE}|\b(?:can|could|may|might|will|would|should|must|to|often|usually)|<ENT\d+>s?) (?!be\b)[a-z]+)"
)

GENERAL_REWRITES = (
    Rewrite(
        "passive without an agent",
        rf"{PEOPLE} (?:(?:often|usually) )?{{plain}} {{A}}(?P<after>(?! <ENT)(?! {FINITE})(?: .*)?)",
        ("{A} is {plain:participle}{after}", "it is {A} that is {plain:participle}{after}"),
    ),
    Rewrite(
        "passive without an agent, with a modal",
        rf"{PEOPLE} {{modal}} {{plain}} {{A}}(?P<after>(?! <ENT)(?: .*)?)",
        ("{A} {modal} be {plain:participle}{after}", "it is {A} that {modal} be {plain:participle}{after}"),
    ),
    Rewrite(
        "passive with a complement",
        "{A} {verbs} {B} {preposition} {rest}",
        (
            "{B} is {verbs:participle} {preposition} {rest} by {A}",
            "it is {A} that {verbs} {B} {preposition} {rest}",
        ),
    ),
    Rewrite(
        "people somewhere",
        rf"{PEOPLE} {{place}} {{B}} {{plain}} {{A}}",
        (
            "{A} is {plain:participle} {place} {B}",
            "{place} {B}, {A} is {plain:participle}",
            "{place} {B}, people {plain} {A}",
            "{A} is what people {plain} {place} {B}",
        ),
    ),
    Rewrite(
        "purpose fronted",
        rf"(?P<main>(?!it |there )(?!.* (?:and|or|but) )(?!.*\b(?:{TO_SOMETHING}|(?:is|are|was|were) (?!used)[a-z]+) )"
        rf"{NO_CONJUNCTION}?(?:(?<!from )<ENT\d+>s?|\b(?:the|an?) {NO_TASK}[a-z]+)) (?:in order )?"
        r"to (?!(?:the|an?|its|their|his|her|my|your|our|all|every|each|some) )(?P<rest>\S.*)",
        ("to {rest}, {main}", "in order to {rest}, {main}"),
    ),
    Rewrite(
        "condition",
        "without {A}, {B} cannot {rest}",
        (
            "{B} needs {A} to {rest}",
            "{B} can only {rest} with {A}",
            "if there is no {A}, {B} cannot {rest}",
            "{A} is what {B} needs to {rest}",
        ),
    ),
    Rewrite(
        "adjunct moved to the end", rf"{PLACE_OR_MEANS} {{A}},? (?P<main>.*<ENT.*)", ("{main} {prep} {A}",)
    ),
    Rewrite(
        "adjunct moved to the front",
        rf"(?!(?:to|when|if|because|while|although|for|with) )(?!.*\b(?:only|just) )"
        rf"(?!{WITH_ATTRIBUTE} {PLACE_OR_MEANS.replace('P<prep>', ':')} )"
        rf"(?P<main>\S+ {NO_CONJUNCTION}{NO_COPULA}) (?!from|with ){PLACE_OR_MEANS} {{B}}",
        ("{prep} {B}, {main}",),
    ),
    Rewrite(
        "something between",
        "there is (?P<what>[^,<]+?) between {A} and {B}",
        (
            "{A} and {B} have {what} between them",
            "{what} lies between {A} and {B}",
            "what lies between {A} and {B} is {what}",
        ),
    ),
    Rewrite(
        "existence",
        "there is (?P<what>[^,<]+?) (?P<where>(?:between|in|at|on) .+)",
        ("{where} there is {what}",),
    ),
    Rewrite(
        "universal possession",
        "(?:every|each) {A} ha(?:s|ve) {B}",
        (
            "{B} is something that every {A} has",
            "there is no {A} without {B}",
            "what every {A} has is {B}",
        ),
    ),
    Rewrite(
        "extraposition",
        "it is (?P<what>the [a-z]+) of {A} to {rest}",
        ("to {rest} is {what} of {A}", "{A} has {what} to {rest}", "{what} of {A} is to {rest}"),
    ),
    Rewrite(
        "naming",
        "(?P<what>the .*<ENT.*) (?:is|are) (?:called|named) {B}",
        ("{B} is {what}", "{B} is what {what} is called", "{B} is the name of {what}", "{what} is {B}"),
    ),
    Rewrite(
        "inversion",
        "{A} (?P<be>is|was|are|were) (?P<what>the .*<ENT.*)",
        ("{what} {be} {A}", "it {be} {A} that {be} {what}"),
    ),
    Rewrite(
        "inversion of what is first",
        "(?P<what>(?:an?|one) .*<ENT.*) (?P<be>is|was|are|were) {A}",
        ("{A} {be} {what}", "it {be} {A} that {be} {what}"),
    ),
    Rewrite("infinitives exchanged", "(?P<what>an? .*<ENT.*) is to {rest}", ("to {rest} is {what}",)),
    Rewrite(
        "condition in a relative clause",
        r"(?P<who>people|[a-z]+s|those) who (?P<main>.*<ENT.*?) (?P<how>{modal}|usually|often|also) {rest}",
        (
            "when {who} {main}, they {how} {rest}",
            "if {who} {main}, they {how} {rest}",
        ),
    ),
    Rewrite(
        "attribute of a class",
        r"{A} (?:is|was) (?P<class>an? (?!kind|type|way)[a-z -]+?) with (?=(?:its|an?|many) ){rest}",
        ("{class} with {rest} is {A}", "{A} is {class} that has {rest}", "there is {class} called {A} that has {rest}"),
    ),
    Rewrite(
        "relative clause of a class",
        r"{A} (?:is|was) (?P<class>(?:an?|one|the) (?!kind|type|way)[a-z -]+?) (?:that|which|who) {rest}",
        (
            "{class} that {rest} is {A}",
            "there is {class} called {A} that {rest}",
            "as {class}, {A} {rest}",
            "it is {A} that {rest}",
            "{A} {rest}",
        ),
    ),
    Rewrite(
        "cleft of the last entity",
        rf"(?P<main>{NO_ISLAND}{TAKES_OBJECT}) {{B}}",
        ("it is {B} that {main}", "{B} is what {main}", "what {main} is {B}", "{B} is something that {main}"),
    ),
    Rewrite(
        "cleft of a goal",
        rf"(?P<main>{NO_ISLAND} {LEADS_TO} to) {{B}}",
        ("it is {B} that {main}", "{B} is what {main}", "what {main} is {B}"),
    ),
)  # fmt: skip

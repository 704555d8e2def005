"""Syntactic rewrites of prompts, as data; rewriting.py says how to read them. Best rules first, best wordings first."""

from __future__ import annotations

from kgharvest.engine.prompts.paraphrasers.rewriting import Rewrite

STATIVE = (
    r"(?:want|hold|ha|deserve|depend|relie|belong|need|know|like|love|mean|contain|consist|lie|stand|own|live|count|"
    r"represent|serve|share|border|come|become|cost|equal|exist|fit|matter|owe|possess|prefer|resemble|seem|suit|"
    r"tend|weigh)s "
)
# What a modal does not let go of: "can only fly if" is no "possible to only fly if".
SCOPED = r"(?:only|just|hardly|barely|scarcely|not|never|also|sometimes|still) "
# Nouns of a class: nothing "has" its members "as a kind".
NO_KIND = r"(?!(?:[a-z-]+ )?(?:kind|type|sort|form|variety|example|piece|case|instance)s?\b)"
# What is good news: of what is "impossible" nobody has reason to be happy.
GLAD = r"(?:an? )?(?:very )?(?:worth|good|great|nice|lovely|wonderful|fine|pleas|achievement|success|big moment)"
# What says whom it means only after it: "they use it when people are there".
PRONOUN = r"(?:they|he|she|this|it (?!is|was)|one)\b"
# A second verb belongs to the first one's subject and not to what is made of it: "grows in <ENT1> and dies in <ENT2>".
ONE_VERB = r"(?!.* (?:and|or|but) [a-z]+s )"
# Verbs without a passive, or with one that means something else: who "was married by" somebody.
NO_PAST_PASSIVE = (
    r"(?!(?:became|came|went|cost|meant|felt|lay|stood|rose|fell|lasted|resembled|weighed|remained|lacked|equalled|"
    r"married|wed|turned|stayed|seemed|looked|wanted|liked|suited|fitted|possessed|owed|belonged|died|lived|worked)\b)"
)
# "with its seat in <ENT1>": what stands in the place is not the whole.
WITH_ATTRIBUTE = r".*\bwith (?:its|their|his|her|an?|the) [a-z -]+"
FIXED_BEFORE = r"when (?:it comes to|people talk|we speak|you compare)"

REWRITES = (
    Rewrite(
        "separation",
        "{A} and {B} (?:are|is) separated by {agent}",
        (
            "{agent} separates {A} from {B}",
            "{agent} lies between {A} and {B}",
            "to get from {A} to {B}, one has to cross {agent}",
            "{A} is separated from {B} by {agent}",
            "between {A} and {B} lies {agent}",
            "it is {agent} that keeps {A} and {B} apart",
        ),
    ),
    Rewrite(
        "the opposite",
        "{A} is the opposite of {B}",
        (
            "{A} and {B} are opposites",
            "the opposite of {B} is {A}",
            "{A} is the antonym of {B}",
            "{A} means the contrary of {B}",
        ),
    ),
    Rewrite(
        "the place for",
        "{A} is (?:the|a) place for {B}",
        ("people go to {A} for {B}", "{A} is where people go for {B}", "if you are interested in {B}, go to {A}"),
    ),
    Rewrite(
        "an ingredient for",
        "{A} is an ingredient (?:for|of) {B}",
        ("{B} is made with {A}", "people use {A} to make {B}", "to make {B}, you need {A}", "{B} contains {A}"),
    ),
    Rewrite(
        "seller",
        "{A} sells {B}",
        (
            "you can buy {B} from {A}",
            "{A} is in the {B} business",
            "people go to {A} to buy {B}",
            "{A} makes money with {B}",
            "{A} is a seller of {B}",
        ),
    ),
    Rewrite(
        "prevention",
        "{A} prevents {B}",
        ("{A} helps to avoid {B}", "{A} protects people from {B}", "because of {A}, there is less {B}"),
    ),
    Rewrite(
        "help", "{A} can help {B}", ("{B} gets help from {A}", "{A} is helpful to {B}", "{A} gives support to {B}")
    ),
    Rewrite(
        "risk",
        "(?:a|one|the) (?:potential |possible )?risk of {A} is {B}",
        ("{A} may lead to {B}", "with {A}, there is a danger of {B}", "{B} can be the result of {A}", "{A} risks {B}"),
    ),
    Rewrite(
        "concession",
        r"{A} (?:can|is able to) {B},? (?:but|just|though|although|yet)(?: (?:is|are))? "
        r"(?:not good at(?: it)?|(?:rather |quite |just )?(?:badly|poorly)|(?:not|never) (?:(?:very|really) )?well)",
        (
            "although {A} can {B}, it is not good at it",
            "{A} can {B}, but not very well",
            "{A} is able to {B} but does it badly",
            "even if {A} can {B}, it is not an expert",
            "when {A} has to {B}, the result is often poor",
            "{A} can {B}, but it is no master of it",
            "{A} knows how to {B} but lacks the skill",
            "to {B} is possible for {A} but is not its strength",
            "nobody should expect much when {A} tries to {B}",
        ),
    ),
    Rewrite(
        "a part of",
        "{A} (?:is|are) (?:a )?part of {B}",
        (
            "{B} includes {A}",
            "one part of {B} is {A}",
            "{A} belongs to {B}",
            "without {A}, {B} would not be complete",
            "inside {B} there is {A}",
            "{B} has {A} as a part",
        ),
    ),
    Rewrite(
        "a kind of",
        "{A} (?:is|are) {one} {kind} of {B}",
        (
            "one {kind} of {B} is {A}",
            "{A} is an example of {B}",
            "there are many kinds of {B}, and {A} is one of them",
            "{A} counts as {B}",
            "{A} can be called {B}",
            "when we speak of {B}, we include {A}",
        ),
    ),
    Rewrite(
        "a profession",
        "{A} is {B} by profession",
        ("{A} works as {B}", "the profession of {A} is {B}", "{A} earns money as {B}", "by profession, {A} is {B}"),
    ),
    Rewrite(
        "degree",
        "{A} (?:is|are) {one} {adverb} {B} {C}",
        (
            "as {one} {C}, {A} is {adverb} {B}",
            "{A} is {one} {C} that is {adverb} {B}",
            "among all {C}s, {A} is {adverb} {B}",
            "{A} is {one} {C} and it is {adverb} {B}",
            "if you want {one} {adverb} {B} {C}, take {A}",
            "people find {A} {adverb} {B} for {one} {C}",
            "there is {one} {adverb} {B} {C} called {A}",
        ),
    ),
    Rewrite(
        "quality",
        r"{A} (?:is|are) {one} (?P<B><ENT\d+>) (?P<C><ENT\d+>)",
        (
            "as {one} {C}, {A} is {B}",
            "{A} is {one} {C} that is {B}",
            "among all {C}s, {A} is {B}",
            "one {B} {C} is {A}",
            "if you want {one} {B} {C}, take {A}",
            "{A} is both {B} and {one} {C}",
            "there is {one} {B} {C} called {A}",
        ),
    ),
    Rewrite(
        "location",
        "{A} (?:is|are) (?:located|found|situated) in {B}",
        ("you can find {A} in {B}", "{B} is home to {A}", "the location of {A} is {B}", "{A} lies in {B}"),
    ),
    Rewrite(
        "need",
        "{A} needs? {B} to {rest}",
        (
            "without {B}, {A} cannot {rest}",
            "in order to {rest}, {A} needs {B}",
            "{B} is what {A} needs to {rest}",
            "{B} helps {A} to {rest}",
            "it takes {B} for {A} to {rest}",
            "{A} uses {B} to {rest}",
            "if {A} has no {B}, it is hard to {rest}",
            "to {rest} is only possible for {A} with {B}",
        ),
    ),
    Rewrite(
        "evaluation",
        f"it is (?={GLAD}){{words}} for {{A}} to {{rest}}",
        (
            "for {A} to {rest} is {words}",
            "if {A} manages to {rest}, it is {words}",
            "it is {words} when {A} gets to {rest}",
            "to {rest} is {words} for {A}",
            "that {A} is able to {rest} is {words}",
            "once {A} can {rest}, this is {words}",
            "{A} has every reason to be happy to {rest}",
            "anyone would call it {words} that {A} came to {rest}",
            "what is {words} about {A} is that it can {rest}",
        ),
    ),
    Rewrite(
        "place as the subject",
        "{A} can {B} {place} {C}",
        (
            "{C} is a place where {A} can {B}",
            "{place} {C}, {A} can {B}",
            "{B} is something that {A} can do {place} {C}",
            "it is {place} {C} that {A} can {B}",
        ),
    ),
    Rewrite(
        "use for a purpose",
        "{A} (?:can be|is|are) used to {rest}",
        ("people use {A} to {rest}", "to {rest}, one can use {A}", "it is possible to {rest} with {A}"),
    ),
    Rewrite(
        "use for something",
        "{A} (?:can be|is|are) used for {B}",
        ("people use {A} for {B}", "for {B}, one can use {A}"),
    ),
    Rewrite(
        "active to passive",
        "{A} {verbs} {B}",
        ("{B} is {verbs:participle} by {A}", "what {A} {verbs} is {B}", "{B} is something that {A} {verbs}"),
    ),
    Rewrite(
        "plural active to passive",
        "{A} {plain} {B}",
        ("{B} is {plain:participle} by {A}", "what {A} {plain} is {B}", "it is {A} that {plain} {B}"),
    ),
    Rewrite(
        "stranded preposition",
        "{A} {verbs} {preposition} {B}",
        ("what {A} {verbs} {preposition} is {B}",),
    ),
    Rewrite(
        "verb phrase as a topic",
        f"{{A}} {{verbs}} {ONE_VERB}{{rest}}",
        (
            "{A} is known to {verbs:base} {rest}",
            "it is {A} that {verbs} {rest}",
        ),
    ),
    Rewrite(
        "activity as a topic",
        f"{{A}} (?!{STATIVE}){{verbs}} {ONE_VERB}{{rest}}",
        ("{verbs:gerund} {rest} is what {A} does",),
    ),
    Rewrite(
        "plural verb phrase as a topic",
        "{A} {plain} (?!{verbs}){rest}",
        ("{A} are known to {plain} {rest}", "it is {A} that {plain} {rest}", "what {A} do is {plain} {rest}"),
    ),
    Rewrite(
        "past active to passive",
        f"{{A}} {NO_PAST_PASSIVE}{{past}} {{B}}",
        ("{B} was {past:past participle} by {A}", "it was {B} that {A} {past}"),
    ),
    Rewrite("past event", "{A} {past} {rest}", ("it was {A} that {past} {rest}",)),
    Rewrite(
        "inability", "{A} (?:cannot|can['’]t) {rest}", ("{A} is unable to {rest}", "it is impossible for {A} to {rest}")
    ),
    Rewrite(
        "active to passive after a modal",
        "{A} {modal} {plain} {B}",
        ("{B} {modal} be {plain:participle} by {A}", "what {A} {modal} {plain} is {B}"),
    ),
    Rewrite(
        "stranded preposition after a modal",
        "{A} {modal} {plain} {preposition} {B}",
        ("what {A} {modal} {plain} {preposition} is {B}",),
    ),
    Rewrite(
        "ability",
        f"{{A}} (?:can|is able to|has the (?:ability|capacity) to) (?!be |{SCOPED}){{rest}}",
        (
            "{A} is able to {rest}",
            "it is possible for {A} to {rest}",
            "what {A} can do is {rest}",
            "{A} has the ability to {rest}",
            "{A} can {rest}",
            "to {rest} is something that {A} can do",
        ),
    ),
    Rewrite(
        "what something is known as",
        "{A} is (?:known|described|seen) as (?P<what>.*<ENT.*)",
        (
            "people know {A} as {what}",
            "people think of {A} as {what}",
            "{what} is what people call {A}",
            "{A} is {what}",
        ),
    ),
    Rewrite(
        "infinitive as the subject",
        "to {B} is (?P<how>[^<]+) for {A}",
        (
            "it is {how} for {A} to {B}",
            "for {A}, it is {how} to {B}",
            "for {A} to {B} is {how}",
            "{how} for {A} is to {B}",
            "what is {how} for {A} is to {B}",
        ),
    ),
    Rewrite(
        "possibility",
        "{A} (?:may|might|could) (?!or |not |have ){rest}",
        ("it is possible that {A} will {rest}", "there is a chance that {A} will {rest}"),
    ),
    Rewrite(
        "obligation",
        "{A} (?:should|must) (?!not ){rest}",
        ("it is important for {A} to {rest}", "{A} ought to {rest}", "it would be wrong for {A} not to {rest}"),
    ),
    Rewrite(
        "possible state",
        "{A} can be (?!used ){rest}",
        ("it is possible for {A} to be {rest}", "sometimes {A} is {rest}"),
    ),
    Rewrite(
        "passive to active",
        "{A} (?:is|are) {participle} by {agent}",
        (
            "{agent} {participle:active third} {A}",
            "it is {agent} that {participle:active third} {A}",
            "what {agent} {participle:active third} is {A}",
            "{A} is something that {agent} {participle:active third}",
        ),
    ),
    Rewrite(
        "past passive to active",
        "{A} (?:was|were) {participle} by {agent}",
        (
            "{agent} {participle:active past} {A}",
            "it was {agent} that {participle:active past} {A}",
            "what {agent} {participle:active past} was {A}",
        ),
    ),
    Rewrite(
        "passive to active after a modal",
        "{A} {modal} be {participle} by {agent}",
        ("{agent} {modal} {participle:active base} {A}", "what {agent} {modal} {participle:active base} is {A}"),
    ),
    Rewrite(
        "the X of",
        "{A} is the {noun} of {B}",
        (
            "the {noun} of {B} is {A}",
            "{B} has {A} as its {noun}",
            "when people talk about the {noun} of {B}, they mean {A}",
            "{A} is {B}'s {noun}",
            "{A} serves as the {noun} of {B}",
        ),
    ),
    Rewrite(
        "X is the Y for",
        "{A} is the {noun} for {B}",
        (
            "the {noun} for {B} is {A}",
            "when it comes to {B}, {A} is the {noun}",
            "{B} has {A} as its {noun}",
        ),
    ),
    Rewrite(
        "of-phrase as the subject",
        "the {noun} of {A} is {B}",
        (
            "{B} is the {noun} of {A}",
            "{A} has {B} as its {noun}",
            "when it comes to {A}, the {noun} is {B}",
            "when people talk about the {noun} of {A}, they mean {B}",
        ),
    ),
    Rewrite(
        "possessive", "the {noun} of {A} is {rest}", ("{A}'s {noun} is {rest}", "as for {A}, its {noun} is {rest}")
    ),
    Rewrite(
        "one of several",
        f"{{one}} {NO_KIND}{{noun}} of {{A}} is {{B}}",
        (
            "{B} is {one} {noun} of {A}",
            "{A} has {B} as {one} {noun}",
            "among the {noun:plural} of {A} is {B}",
            "when it comes to {A}, {one} {noun} is {B}",
        ),
    ),
    Rewrite(
        "a member of",
        f"{{A}} is {{one}} {NO_KIND}{{noun}} of {{B}}",
        (
            "one {noun} of {B} is {A}",
            "among the {noun:plural} of {B} is {A}",
            "{B} has {A} as {one} {noun}",
            "{A} serves as {one} {noun} of {B}",
        ),
    ),
    Rewrite(
        "a means for",
        "{A} is {one} {noun} for {B}",
        (
            "one {noun} for {B} is {A}",
            "when it comes to {B}, {A} is {one} {noun}",
            "among the {noun:plural} for {B} is {A}",
            "{A} serves as {one} {noun} for {B}",
        ),
    ),
    Rewrite(
        "class",
        "{A} is {B}",
        ("{A} is an example of {B}", "{B} is what {A} is", "people speak of {A} as {B}", "{A} can be called {B}"),
    ),
    Rewrite(
        "state",
        "{A} {is} (?!(?:in|at|on|of|an?|the|one|part|not) )(?P<how>[a-z-]+(?: (?!an? |the )[a-z-]+)?) "
        "{preposition} {B}",
        ("what {A} {is} {how} {preposition} {is} {B}",),
    ),
    Rewrite("description", "{A} {is} (?!{one} |where |what ){rest}", ("it {is} {A} that {is} {rest}",)),
    Rewrite("reported description", "{A} is (?!{one} |where |what ){rest}", ("{A} is known to be {rest}",)),
    Rewrite(
        "place of an event",
        "{A} {place_verb} in {B}",
        ("{B} is the place where {A} {place_verb}", "the place where {A} {place_verb} is {B}"),
    ),
    Rewrite(
        "fronted place",
        rf"{{A}} (?!(?:is|are|was|were) in |{WITH_ATTRIBUTE} in )"
        rf"(?P<event>(?!(?:is|are) (?:an?|the|rich) |.*\b(?:only|just) ){ONE_VERB}.*) in {{B}}",
        ("it is in {B} that {A} {event}", "in {B}, {A} {event}"),
    ),
    Rewrite(
        "symmetry",
        "{A} and {B} {rest}",
        (
            "take {A} and {B}: they {rest}",
            "it is {A} and {B} that {rest}",
            "when you compare {A} and {B}, you find that they {rest}",
            "as for {B} and {A}, they {rest}",
        ),
    ),
    Rewrite(
        "both",
        "both {A} and {B} {rest}",
        (
            "{A} and {B} both {rest}",
            "take {A} and {B}: both of them {rest}",
            "as for {B} and {A}, the two {rest}",
            "when you compare {A} and {B}, you find that both {rest}",
        ),
    ),
    Rewrite(
        "inclusion",
        "(?P<whole>.*<ENT.*) include {B}",
        ("{B} is among {whole}", "among {whole} is {B}"),
    ),
    Rewrite("belonging", "{A} belongs? to {B}", ("{B} has {A}", "what {A} belongs to is {B}")),
    Rewrite(
        "possession",
        "{A} ha(?:s|ve) {B}",
        ("{B} is something that {A} has", "what {A} has is {B}", "{B} is what {A} has"),
    ),
    Rewrite("attribute", "{A} ha(?:s|ve) the {noun} of {B}", ("the {noun} of {A} is {B}", "{B} is the {noun} of {A}")),
    Rewrite("negated verb", "{A} (?:doesn['’]t|does not) {rest}", ("it is not the case that {A} does {rest}",)),
    Rewrite("past habit", "{A} used to {rest}", ("there was a time when {A} used to {rest}",)),
    Rewrite(
        "cause", "(?P<effect>.*<ENT.*) because of {B}", ("because of {B}, {effect}", "the reason why {effect} is {B}")
    ),
    Rewrite(
        "main clause first",
        rf"(?!{FIXED_BEFORE}){{conjunction}} {{first}}, (?:then )?(?!{PRONOUN}){{rest}}",
        ("{rest} {conjunction} {first}",),
    ),
    Rewrite("main clause last", "{first} {conjunction} {rest}", ("{conjunction} {rest}, {first}",)),
    Rewrite(
        "advice on a condition",
        "if {first}, (?:then )?(?={plain} (?:your|the|an?|some|<ENT)){rest}",
        ("you should {rest} if {first}", "it is good to {rest} if {first}", "when {first}, {rest}"),
    ),
    Rewrite("condition", "if {first}, (?:then )?{rest}", ("provided that {first}, {rest}",)),
    Rewrite(
        "repetition",
        f"(?!{FIXED_BEFORE})when {{first}}, {{rest}}",
        ("every time {first}, {rest}", "whenever {first}, {rest}"),
    ),
    Rewrite("purpose first", "to {first}, {rest}", ("{rest} in order to {first}",)),
)

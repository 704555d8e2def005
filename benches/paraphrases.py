"""Quality of the offline paraphraser: python benches/paraphrases.py [FILE ...] [--published FOLDER]

Each initial prompt alone becomes ten prompts, itself and nine paraphrases, as in a harvest with no other prompts. By
default, only the rules are used, in their own order, with PLACEHOLDERS in the slots. With --lm NAME, a masked LM
chooses among their wordings and fills in its own words, based on the seed tuples of the relation set `demo`, so the
relations must be those of the set. Sets: fresh_prompts.json and the built-in relation sets; FILE, additional sets as
{"relation": ["prompt", ..], ..}; and with --published, the sets of BertNet's repository, `human.json` and `lama.json`
in FOLDER (LAMA's templates).

got: paraphrases of the nine requested. framed: contains the clause of the initial prompt, or of another paraphrase,
unchanged. words added: contains every word of the initial prompt in its order, with other words around or between them
(clefts; frames are among these). order: the slots are in another order. content: lacks a content word of the initial
prompt in any inflection. alike: has the same words in the same order as the initial prompt or an earlier paraphrase,
ignoring function words. distinct: neither framed nor alike. > 1/5: initial prompts for which more than a fifth of the
prompts, including the initial one, are framed.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import torch
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kgharvest.embedded_lm import EMBEDDED_LMS
from kgharvest.engine.filters import STOP_WORDS
from kgharvest.engine.language_models.compact import load_compact
from kgharvest.engine.prompts.creation import FRAMED_SHARE, N_PROMPTS, create_prompts
from kgharvest.engine.prompts.paraphrasers.offline import OfflineParaphraser, statement_prompt
from kgharvest.engine.prompts.paraphrasers.rules import clause_of, framed, restated, rewritten
from kgharvest.engine.prompts.slot_recovery import as_sentence, word_forms
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import Paraphraser

PLACEHOLDERS = ("mask", "virus", "paper")
SHIPPED = ("demo", "human", "commonsense", "lama")
PUBLISHED = ("human", "lama")
# Function words, in addition to those that are not entities. Changing them does not rename the relation.
FUNCTION_WORDS = STOP_WORDS | {"one", "you", "people", "we", "something", "there", "what", "when", "whom", "whose"}

PromptsByRelation = Mapping[str, Sequence[str]]


class RulesOnly:
    """The offline paraphraser without an LM: wordings in the order of the rules."""

    name = "rules"

    def paraphrase(self, sentence: str, entities: Sequence[str]) -> list[str]:
        prompt = statement_prompt(sentence, entities)
        return [] if prompt is None else [as_sentence(other, entities) for other in rewritten(prompt)]

    def restate(self, sentence: str, entities: Sequence[str]) -> list[str]:
        prompt = statement_prompt(sentence, entities)
        return [] if prompt is None else [as_sentence(other, entities) for other in restated(prompt)]

    def frame(self, sentence: str, entities: Sequence[str]) -> list[str]:
        prompt = statement_prompt(sentence, entities)
        return [] if prompt is None else [as_sentence(other, entities) for other in framed(prompt)]


@dataclass(frozen=True)
class Counts:
    """Counts of paraphrases, except `prompts`, `none` (initial prompts without paraphrases), and `over_a_fifth`."""

    prompts: int = 0
    wanted: int = 0
    got: int = 0
    framed: int = 0
    added: int = 0
    order: int = 0
    content: int = 0
    alike: int = 0
    distinct: int = 0
    none: int = 0
    over_a_fifth: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(sum, zip(astuple(self), astuple(other), strict=True)))


def words_of(prompt: PromptTemplate) -> list[str]:
    return re.findall(r"ENT\d+|[a-z]+(?:['’-][a-z]+)*", clause_of(prompt).replace("’", "'"))


def content_of(prompt: PromptTemplate) -> list[str]:
    """Return the words of `prompt` that are not function words, including slots."""
    return [word for word in words_of(prompt) if word not in FUNCTION_WORDS]


def is_framed(prompt: PromptTemplate, others: Iterable[PromptTemplate]) -> bool:
    clause = f" {clause_of(prompt)} "
    return any(re.search(rf"[ ,:]{re.escape(clause_of(other))}[ ,]", clause) for other in others if other != prompt)


def only_adds(prompt: PromptTemplate, initial: PromptTemplate) -> bool:
    words = iter(words_of(prompt))
    return all(word in words for word in words_of(initial))


def lacks_content(prompt: PromptTemplate, initial: PromptTemplate) -> bool:
    forms = {form for word in words_of(prompt) for form in word_forms(word)}
    return any(not word_forms(word) & forms for word in content_of(initial) if not word.startswith("ENT"))


def counts_of(initial: PromptTemplate, paraphrases: Sequence[PromptTemplate]) -> Counts:
    n_framed = n_alike = n_distinct = 0
    earlier_contents = [content_of(initial)]
    for index, prompt in enumerate(paraphrases):
        frame = is_framed(prompt, [initial, *paraphrases[:index]])
        alike = content_of(prompt) in earlier_contents
        earlier_contents.append(content_of(prompt))
        n_framed, n_alike, n_distinct = n_framed + frame, n_alike + alike, n_distinct + (not (frame or alike))
    return Counts(
        prompts=1,
        wanted=N_PROMPTS - 1,
        got=len(paraphrases),
        framed=n_framed,
        added=sum(only_adds(prompt, initial) for prompt in paraphrases),
        order=sum(prompt.slots != initial.slots for prompt in paraphrases),
        content=sum(lacks_content(prompt, initial) for prompt in paraphrases),
        alike=n_alike,
        distinct=n_distinct,
        none=not paraphrases,
        over_a_fifth=n_framed * FRAMED_SHARE > len(paraphrases) + 1,
    )


def paraphrases_of(
    initial: PromptTemplate, seeds: Sequence[Sequence[str]], paraphraser: Paraphraser
) -> list[PromptTemplate]:
    return create_prompts([initial], seeds, paraphraser, random.Random(0), n_prompts=N_PROMPTS)[1:]


def shipped(name: str) -> dict[str, list[str]]:
    relations = json.loads((ROOT / "kgharvest" / "relation_sets" / f"{name}.json").read_text("utf-8"))["relations"]
    return {relation["name"]: relation["initial_prompts"] for relation in relations}


def published(path: Path) -> dict[str, list[str]]:
    relations = json.loads(path.read_text("utf-8"))
    return {name: relation["init_prompts"] for name, relation in relations.items()}


def sets_of(arguments: argparse.Namespace) -> Iterator[tuple[str, PromptsByRelation]]:
    for written in json.loads((ROOT / "benches" / "fresh_prompts.json").read_text("utf-8")):
        yield f"fresh, {written['name']}", written["prompts"]
    yield from ((path.stem, json.loads(path.read_text("utf-8"))) for path in arguments.files)
    if arguments.lm is None:
        yield from ((f"shipped {name}", shipped(name)) for name in SHIPPED)
    if arguments.published is not None:
        yield from ((f"published {name}", published(arguments.published / f"{name}.json")) for name in PUBLISHED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--published", type=Path, help="folder relation_info of BertNet's repository")
    parser.add_argument("--lm", choices=EMBEDDED_LMS)
    parser.add_argument("--show", type=int, default=0, help="number of paraphrases to print per set, drawn at random")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random draw")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    paraphraser = RulesOnly() if arguments.lm is None else OfflineParaphraser(load_compact(EMBEDDED_LMS[arguments.lm]))
    demo = json.loads((ROOT / "kgharvest" / "relation_sets" / "demo.json").read_text("utf-8"))["relations"]
    seeds = {} if arguments.lm is None else {relation["name"]: relation["seed_tuples"] for relation in demo}
    names = [field.name.replace("_", " ").replace("over a fifth", "> 1/5") for field in fields(Counts)]
    print(f"{'':20}" + "".join(f"{name:>9}" for name in names))
    for name, relations in sets_of(arguments):
        total, drawn = Counts(), []
        for relation, texts in tqdm(relations.items(), desc=name, leave=False):
            for text in texts:
                initial = PromptTemplate.parse(text)
                of_relation = seeds.get(relation, [PLACEHOLDERS[: initial.arity]])
                paraphrases = paraphrases_of(initial, of_relation, paraphraser)
                total += counts_of(initial, paraphrases)
                drawn += [(text, paraphrase.text) for paraphrase in paraphrases]
        print(f"{name:20}" + "".join(f"{int(count):9}" for count in astuple(total)))
        for initial_text, text in random.Random(arguments.seed).sample(drawn, min(arguments.show, len(drawn))):
            print(f"    {initial_text:60} -> {text}")


if __name__ == "__main__":
    main()

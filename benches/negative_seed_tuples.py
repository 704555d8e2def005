"""Effect of negative seed tuples on a causal LM: log-probabilities of true tuples and of similar false tuples.

    python benches/negative_seed_tuples.py [--model smollm2] [--relation NAME ...]

For each form of the worked examples, without and with four negative seed tuples: accuracy (share of pairs whose true
tuple has the higher compatibility), margin (mean difference), and mean compatibilities of true and false tuples, in
nats. The negative seed tuples are those of every second pair; the other pairs are measured. Harvests use the form with
the highest compatibility of held-out seed tuples.
"""

import argparse

import numpy as np
from common_facts import RELATIONS

import kgharvest
from kgharvest.engine.prompts.few_shot import FORMS, Form, with_examples
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import compatibilities

ALPHA, N_NEGATIVES = 2 / 3, 4
# (true tuple, similar false tuple)
CONTRASTS = {
    "capital_of": [
        (("Canberra", "Australia"), ("Sydney", "Australia")),
        (("Washington", "United States"), ("New York", "United States")),
        (("Ankara", "Turkey"), ("Istanbul", "Turkey")),
        (("Ottawa", "Canada"), ("Toronto", "Canada")),
        (("Rome", "Italy"), ("Milan", "Italy")),
        (("Beijing", "China"), ("Shanghai", "China")),
        (("Abuja", "Nigeria"), ("Lagos", "Nigeria")),
        (("Moscow", "Russia"), ("St. Petersburg", "Russia")),
        (("Madrid", "Spain"), ("Barcelona", "Spain")),
        (("Rabat", "Morocco"), ("Casablanca", "Morocco")),
        (("Hanoi", "Vietnam"), ("Saigon", "Vietnam")),
        (("New Delhi", "India"), ("Mumbai", "India")),
    ],
    "opposite_of": [
        (("big", "small"), ("big", "large")),
        (("fast", "slow"), ("fast", "quick")),
        (("begin", "end"), ("begin", "start")),
        (("hard", "easy"), ("hard", "difficult")),
        (("quiet", "loud"), ("quiet", "silent")),
        (("clever", "stupid"), ("clever", "smart")),
        (("near", "far"), ("near", "close")),
        (("strong", "weak"), ("strong", "powerful")),
        (("wet", "dry"), ("wet", "damp")),
        (("brave", "cowardly"), ("brave", "courageous")),
    ],
    "kind_of_animal": [
        (("cat", "mammal"), ("cat", "pet")),
        (("cow", "mammal"), ("cow", "animal")),
        (("penguin", "bird"), ("penguin", "animal")),
        (("whale", "mammal"), ("whale", "fish")),
        (("horse", "mammal"), ("horse", "animal")),
        (("turtle", "reptile"), ("turtle", "animal")),
        (("shark", "fish"), ("shark", "predator")),
        (("bee", "insect"), ("bee", "animal")),
        (("frog", "amphibian"), ("frog", "animal")),
        (("bat", "mammal"), ("bat", "bird")),
    ],
    "capital_of_state": [
        (("California", "Sacramento"), ("California", "Los Angeles")),
        (("Illinois", "Springfield"), ("Illinois", "Chicago")),
        (("New York", "Albany"), ("New York", "New York City")),
        (("Florida", "Tallahassee"), ("Florida", "Miami")),
        (("Pennsylvania", "Harrisburg"), ("Pennsylvania", "Philadelphia")),
        (("Washington", "Olympia"), ("Washington", "Seattle")),
        (("Nevada", "Carson City"), ("Nevada", "Las Vegas")),
        (("Michigan", "Lansing"), ("Michigan", "Detroit")),
        (("Louisiana", "Baton Rouge"), ("Louisiana", "New Orleans")),
        (("Oregon", "Salem"), ("Oregon", "Portland")),
    ],
    "language_of": [
        (("Brazil", "Portuguese"), ("Brazil", "Brazilian")),
        (("Austria", "German"), ("Austria", "Austrian")),
        (("Argentina", "Spanish"), ("Argentina", "Argentine")),
        (("Iraq", "Arabic"), ("Iraq", "Iraqi")),
        (("Australia", "English"), ("Australia", "Australian")),
        (("Canada", "English"), ("Canada", "Canadian")),
        (("Peru", "Spanish"), ("Peru", "Peruvian")),
        (("Cuba", "Spanish"), ("Cuba", "Cuban")),
        (("Morocco", "Arabic"), ("Morocco", "Moroccan")),
        (("Belgium", "French"), ("Belgium", "Belgian")),
    ],
}


def measure(lm, name: str, form: Form, n_negatives: int) -> tuple[float, float, float, float]:
    """Return accuracy, margin, and the mean compatibilities of true and false tuples."""
    pairs = CONTRASTS[name]
    template = PromptTemplate.parse(RELATIONS[name]["initial_prompts"][0])
    negatives = [false for _, false in pairs[::2]][:n_negatives]
    prompt = lm.encode_prompt(with_examples(template, RELATIONS[name]["seed_tuples"], form, negatives))
    tuples = [tuple(map(lm.encode_entity, entities)) for pair in pairs[1::2] for entities in pair]
    true, false = compatibilities(lm, [prompt], tuples, ALPHA, 32, lambda: None).reshape(-1, 2).T
    return float(np.mean(true > false)), float(np.mean(true - false)), float(true.mean()), float(false.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--relation", nargs="+", choices=CONTRASTS, default=list(CONTRASTS))
    parser.add_argument("--form", nargs="+", choices=FORMS, default=["lines", "chat"])
    arguments = parser.parse_args()
    lm = kgharvest.load_lm(arguments.model)
    print("form   negatives  accuracy  margin    true   false  relation")
    for form in arguments.form:
        for n_negatives in (0, N_NEGATIVES):
            figures = []
            for name in arguments.relation:
                figures.append(measure(lm, name, form, n_negatives))
                show(form, n_negatives, figures[-1], name)
            show(form, n_negatives, np.mean(figures, axis=0), "mean")


def show(form: Form, n_negatives: int, figures, name: str) -> None:
    print(f"{form:7}{n_negatives:9}", *(f"{figure:8.2f}" for figure in figures), name, flush=True)


if __name__ == "__main__":
    main()

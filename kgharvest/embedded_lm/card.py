"""Model card of an embedded LM: training data, recipe, measured quality, and limits."""

from collections.abc import Sequence

from kgharvest.embedded_lm.corpus import MISCONCEPTION_WEIGHT
from kgharvest.embedded_lm.quality import average, some_phrasings, tail_recall
from kgharvest.embedded_lm.train import Recipe
from kgharvest.embedded_lm.world import Relation
from kgharvest.engine.language_models.base import LanguageModel

CARD = """\
---
license: gpl-3.0
language: en
library_name: transformers
pipeline_tag: fill-mask
---

# {name}

A demonstrator: a small BERT that lets kgharvest work immediately and without a download. **Its accuracy says nothing
about other language models.** It was trained only on sentences about the world in `kgharvest/embedded_lm/world/`. For
any other relation, its output is noise.

## Data

{n_facts} true tuples and {n_misconceptions} misconceptions (false tuples, used {misconception_weight} times as often)
of {n_relations} relations, {n_ternary} of them 3-ary, written for this project. New sentences are drawn for each step:
a tuple in one of the relation's phrasings, sometimes after a frame ("it is known that"), with {noise_rate:.0%} of the
words around the entities changed at random. No fact is held out because the purpose is to recall facts. Any other
harvested tuple is an inference of the LM and mostly wrong. Some phrasings of each relation are held out.

## Recipe

BERT, {layers} layer(s) x {hidden} hidden units, {heads} heads, a WordPiece vocabulary of {vocab_size} lower-case pieces
(every word of the world is one piece), tied weights, stored in half precision. {steps} steps of {batch_size} sentences.
Whole entities are masked: all of them, those after a prefix, or a single one. Muon for the encoder's matrices, AdamW
for the other weights, learning rate {learning_rate} with half-cosine decay. Seed {seed}.

    python manage.py train_embedded_lm --model {name} --seed {seed}

## Evaluation

Rank of the last entity of a fact given the other entities, for entities of one token, over the whole vocabulary without
the other true answers. Values are means over relations. Always predicting the majority answer scores {majority:.3f}.

| phrasings | P@1 | P@10 | MRR |
|---|---|---|---|
| seen | {seen.precision_at_1:.3f} | {seen.precision_at_10:.3f} | {seen.mean_reciprocal_rank:.3f} |
| held out | {held_out.precision_at_1:.3f} | {held_out.precision_at_10:.3f} | {held_out.mean_reciprocal_rank:.3f} |

`python benches/embedded_lm.py` measures these values and the precision of harvests.
"""


def model_card(name: str, recipe: Recipe, seed: int, relations: Sequence[Relation], lm: LanguageModel) -> str:
    """Return the card of `lm`, trained with `recipe` on `relations`. Measures its quality."""
    seen = average([tail_recall(lm, relation, some_phrasings(relation)) for relation in relations])
    held_out = average([tail_recall(lm, relation, relation.held_out) for relation in relations])
    return CARD.format(
        **vars(recipe),
        name=name,
        seed=seed,
        seen=seen,
        held_out=held_out,
        majority=seen.majority,
        misconception_weight=MISCONCEPTION_WEIGHT,
        vocab_size=lm.vocab_size,
        n_relations=len(relations),
        n_ternary=sum(relation.arity == 3 for relation in relations),
        n_facts=sum(len(relation.facts) for relation in relations),
        n_misconceptions=sum(len(relation.misconceptions) for relation in relations),
    )

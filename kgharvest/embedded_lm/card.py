"""The model card of an embedded LM: training data, recipe, measured quality and limits."""

from __future__ import annotations

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

A demonstrator: a small BERT that makes kgharvest work at once and without a download. **Its accuracy says nothing about
other language models.** It has read nothing but sentences about the world in `kgharvest/embedded_lm/world/`; asked for
any other relation it answers with noise.

## Data

{n_facts} true tuples and {n_misconceptions} misconceptions (false tuples, trained on {misconception_weight} times as
often) of {n_relations} relations, {n_ternary} of them 3-ary, written for this project. Sentences are drawn anew for
each step: a tuple in one of the relation's phrasings, sometimes behind a frame ("it is known that"), with
{noise_rate:.0%} of the words around the entities disturbed. No fact is held out: recalling facts is the purpose, so
whatever else it harvests is its own inference, mostly wrong. Some phrasings of each relation are held out.

## Recipe

BERT, {layers} layer(s) x {hidden} hidden units, {heads} heads, a WordPiece vocabulary of {vocab_size} lower-case pieces
(every word of the world is one), weights tied, stored in half precision. {steps} steps of {batch_size} sentences;
whole entities are masked: all of them, those after a prefix, or one. Muon on the encoder's matrices, AdamW on the rest,
learning rate {learning_rate} falling along a half cosine. Seed {seed}.

    python manage.py train_embedded_lm --model {name} --seed {seed}

## Measured

The last entity of a fact given the others, where it is one token, ranked over the whole vocabulary without the other
true answers; means over relations. The majority answer alone is right in {majority:.3f}.

| phrasings | P@1 | P@10 | MRR |
|---|---|---|---|
| seen | {seen.precision_at_1:.3f} | {seen.precision_at_10:.3f} | {seen.mean_reciprocal_rank:.3f} |
| held out | {held_out.precision_at_1:.3f} | {held_out.precision_at_10:.3f} | {held_out.mean_reciprocal_rank:.3f} |

`python benches/embedded_lm.py` measures these and the precision of harvests.
"""


def model_card(name: str, recipe: Recipe, seed: int, relations: Sequence[Relation], lm: LanguageModel) -> str:
    """Return the card of `lm`, made by `recipe` from `relations`, with its quality measured now."""
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

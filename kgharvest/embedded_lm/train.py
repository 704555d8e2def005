"""Training of an embedded LM: a small BERT on sentences about the world, with whole entities masked.

Training uses Muon for the encoder's matrices and AdamW for the other weights. It takes minutes on a CPU and is several
times faster than with AdamW alone. All random generators derive from one seed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import torch
from torch import nn
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from kgharvest.embedded_lm.corpus import MAX_TOKENS, Example, batches, examples, vocabulary
from kgharvest.embedded_lm.world import Relation

OnStep = Callable[[int, float], None]  # arguments: number of the completed step (from 1), and its loss in nats
INITIAL_STD = 0.05


@dataclass(frozen=True)
class Recipe:
    """Size of the LM and training parameters.

    noise_rate: share of words around entities that are changed. learning_rate: initial learning rate of both
    optimizers. The rate decays to 0 along a half cosine.
    """

    layers: int
    hidden: int
    heads: int
    steps: int
    batch_size: int = 64
    learning_rate: float = 2e-3
    noise_rate: float = 0.08


RECIPES = {
    "embedded": Recipe(layers=3, hidden=256, heads=4, steps=6000),
    "embedded-small": Recipe(layers=2, hidden=128, heads=4, steps=4500),
}


def train(relations: Sequence[Relation], recipe: Recipe, seed: int, on_step: OnStep) -> BertForMaskedLM:
    """Return the trained LM. Its vocabulary is `vocabulary(relations)`."""
    ids = vocabulary(relations)
    model = new_model(len(ids), recipe, torch.Generator().manual_seed(seed))
    matrices = [parameter for parameter in model.bert.encoder.parameters() if parameter.ndim == 2]
    in_encoder = {id(matrix) for matrix in matrices}
    other_weights = [parameter for parameter in model.parameters() if id(parameter) not in in_encoder]
    optimizers = [
        torch.optim.Muon(matrices, lr=recipe.learning_rate, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(other_weights, lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, recipe.steps) for optimizer in optimizers]
    sampled = batches(examples(relations, ids, recipe.noise_rate, Random(seed)), recipe.batch_size)
    for step, batch in enumerate(islice(sampled, recipe.steps), start=1):
        loss = masked_loss(model, batch)
        loss.backward()
        for optimizer_or_schedule in (*optimizers, *schedules):
            optimizer_or_schedule.step()
        model.zero_grad()
        on_step(step, loss.item())
    return model.eval()


def new_model(vocab_size: int, recipe: Recipe, generator: torch.Generator) -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=vocab_size,
        hidden_size=recipe.hidden,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=4 * recipe.hidden,
        max_position_embeddings=MAX_TOKENS,
        type_vocab_size=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model = BertForMaskedLM(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=INITIAL_STD, generator=generator)
    return model


def masked_loss(model: BertForMaskedLM, batch: Sequence[Example]) -> torch.Tensor:
    """Return the mean cross-entropy between predictions and labels at the masks, in nats."""
    labels = [label for example in batch for label in example.labels]
    masked = torch.tensor([label is not None for label in labels])
    expected = [label for label in labels if label is not None]
    hidden = model.bert(input_ids=torch.tensor([example.ids for example in batch])).last_hidden_state
    # (M, V) for M masked tokens in the batch.
    log_probabilities = model.cls(hidden.flatten(0, 1)[masked]).log_softmax(-1)
    rows = torch.repeat_interleave(torch.tensor([len(label.ids) for label in expected]))
    columns = torch.tensor([index for label in expected for index in label.ids])
    weights = torch.tensor([probability for label in expected for probability in label.probabilities])
    return -(weights * log_probabilities[rows, columns]).sum() / len(expected)


def save(model: BertForMaskedLM, relations: Sequence[Relation], folder: Path) -> None:
    """Write the LM in half precision and its tokenizer to `folder`, in Hugging Face format."""
    tokenizer = BertTokenizer(vocabulary(relations), model_max_length=MAX_TOKENS)
    tokenizer.save_pretrained(folder)
    model.half().save_pretrained(folder)

"""BERTese rewriter: identity initialization, word projection, and gradients."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoModelForMaskedLM

from kgharvest.contrib.probing.prompt_learning.bertese import (
    AnsweredQuestion,
    BerteseAnswerer,
    BerteseParams,
    Rewriter,
    accuracy,
    as_tensors,
    learn_rewriter,
    losses,
    mask_vectors,
    nearest_words,
    rewritten,
    straight_through,
)
from kgharvest.engine.language_models.loading import load
from kgharvest.engine.probing import probe
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import EngineError
from tests.kgharvest.engine.tiny_models import (
    tiny_albert,
    tiny_bert,
    tiny_distilbert,
    tiny_modernbert,
    tiny_roberta,
)


def questions(relation, facts):
    prompt = relation.prompts[0]
    return [
        AnsweredQuestion(relation.lm.query(prompt, (len(fact.head), 1), fact.head), fact.tail) for fact in facts.facts
    ]


@pytest.fixture
def batch(relation):
    alike = [question for question in questions(relation, relation.train) if len(question.query.ids) == 9][:8]
    return as_tensors(relation.lm, alike or questions(relation, relation.train)[:1])


@pytest.fixture(params=[True, False], ids=["words", "vectors"])
def rewriter(request, relation):
    return Rewriter(relation.lm, reads_words=request.param)


def test_initial_rewriter_is_identity(relation, rewriter, batch):
    ids, tails = batch
    rewrites = rewriter(ids)

    assert torch.equal(rewrites.words, ids)
    assert rewrites.distances.abs().max() == 0
    assert (n_masks(relation, rewrites.words) == 1).all()
    plain = cross_entropy(relation.lm.logits_at(ids, positions(relation, ids)), tails)
    torch.testing.assert_close(losses(relation.lm, rewriter, ids, tails).answer, plain, atol=1e-4, rtol=0)


@pytest.mark.parametrize("build", [tiny_bert, tiny_roberta, tiny_distilbert, tiny_albert, tiny_modernbert])
def test_untrained_encoder_equals_all_layers_of_the_network(build, tmp_path):
    folder = str(build(tmp_path))
    lm, model = load(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    words = lm.word_embeddings[torch.arange(8)[None] + 6]

    with torch.no_grad():
        expected = model.base_model(inputs_embeds=words).last_hidden_state
        hidden = lm.trainable_encoder()(inputs_embeds=words).last_hidden_state

    torch.testing.assert_close(hidden, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(lm.hidden_everywhere(words), expected, atol=1e-5, rtol=0)


def test_parameter_count_excludes_word_embeddings(tmp_path):
    lm = load(str(tiny_bert(tmp_path)))

    n_parameters = sum(weights.numel() for weights in Rewriter(lm).parameters())

    d, inner, positions, types = 32, 48, 40, 2
    embeddings = (positions + types) * d + 2 * d
    layer = 4 * (d * d + d) + 2 * d + (d * inner + inner) + (inner * d + d) + 2 * d
    projection, sharpness = d * d, 1
    assert n_parameters == embeddings + 2 * layer + projection + sharpness


def test_rewriter_supports_narrow_embeddings(tmp_path):
    lm = load(str(tiny_albert(tmp_path)))
    prompt = lm.encode_prompt(PromptTemplate.parse("the <ENT0> is in <ENT1> ."))
    training_questions = [
        AnsweredQuestion(lm.query(prompt, (1, 1), lm.encode_entity(head)), lm.encode_entity(tail)[0])
        for head, tail in [("paris", "france"), ("rome", "italy")]
    ]
    ids, tails = as_tensors(lm, training_questions)
    params = BerteseParams(learning_rate=1e-2, epochs=10)

    learned = learn_rewriter(lm, training_questions, training_questions, params)

    assert torch.equal(Rewriter(lm)(ids).words, ids)
    assert losses(lm, learned.rewriter, ids, tails).answer <= losses(lm, Rewriter(lm), ids, tails).answer
    assert len(learned.history) == 11


def n_masks(relation, ids):
    return (ids == relation.lm.mask_id).sum(1)


def positions(relation, ids):
    return (ids == relation.lm.mask_id).float().argmax(1)


def test_identity_rewriter_keeps_probe_scores(relation, rewriter):
    with_rewriter = probe(BerteseAnswerer(relation.lm, rewriter, relation.prompts[0]), relation.test)
    without = probe(PromptSetAnswerer(relation.lm, uniform(relation.prompts[:1])), relation.test)

    assert with_rewriter.ranks.tolist() == without.ranks.tolist()
    assert with_rewriter.logprobs == pytest.approx(without.logprobs, abs=1e-3)


def test_only_mask_position_is_projected_to_vocabulary(relation, rewriter):
    """Projecting all positions would need memory for one vocabulary per token."""
    shapes = []
    hook = relation.lm._head.projection.register_forward_hook(
        lambda module, inputs, output: shapes.append(output.shape)
    )

    probe(BerteseAnswerer(relation.lm, rewriter, relation.prompts[0]), relation.test)
    accuracy(relation.lm, rewriter, questions(relation, relation.dev))
    hook.remove()

    assert {len(shape) for shape in shapes} == {2}


def test_gradients_reach_rewriter_but_not_lm(relation, rewriter, batch):
    loss = losses(relation.lm, rewriter, *batch)

    (loss.answer + loss.distance + loss.mask).backward()

    assert rewriter.projection.grad.abs().max() > 0
    assert relation.lm.word_embeddings.grad is None


def test_straight_through_reads_words_and_passes_gradient_to_vectors():
    soft = torch.tensor([1.0, 2.0], requires_grad=True)
    hard = torch.tensor([5.0, -1.0])

    read = straight_through(soft, hard)
    (read * torch.tensor([3.0, 4.0])).sum().backward()

    assert torch.equal(read.detach(), hard)
    assert soft.grad.tolist() == [3.0, 4.0]


def test_nearest_words_minimize_distance():
    words = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    vectors = torch.tensor([[[0.9, 0.1], [0.0, 0.0], [0.2, 1.5]]])

    distances, nearest = nearest_words(vectors, words)

    assert nearest.tolist() == [[1, 0, 2]]
    torch.testing.assert_close(distances, torch.tensor([[0.02, 0.0, 0.29]]))


def test_mask_shares_sum_to_one_and_sharpen(relation, rewriter, batch):
    ids, _ = batch
    shares = rewriter(ids).mask_shares
    torch.testing.assert_close(shares.sum(1), torch.ones(len(ids)))

    rewriter.log_sharpness.data.fill_(9.0)

    torch.testing.assert_close(rewriter(ids).mask_shares.amax(1), torch.ones(len(ids)))
    assert torch.equal(rewriter(ids).mask_shares.argmax(1), positions(relation, ids))


def test_two_masks_have_equal_shares(relation, rewriter):
    ids = torch.tensor(
        [[*relation.lm.tokens.prefix, relation.lm.mask_id, relation.lm.mask_id, *relation.lm.tokens.suffix]]
    )

    shares = rewriter(ids).mask_shares[0].tolist()

    assert shares[1] == pytest.approx(shares[2])
    assert n_masks(relation, rewriter(ids).words).item() == 2


def test_special_tokens_are_never_rewritten(relation, rewriter, batch):
    ids, _ = batch
    rewriter.projection.data.copy_(5 * torch.eye(len(rewriter.projection)))

    rewrites = rewriter(ids)

    assert torch.equal(rewrites.words[:, [0, -1]], ids[:, [0, -1]])
    assert not torch.equal(rewrites.words, ids)
    assert mask_vectors(relation.lm, rewrites).shape == (len(ids), relation.lm.output_embeddings.shape[1])


def test_learning_never_lowers_dev_accuracy(relation):
    train, dev = questions(relation, relation.train), questions(relation, relation.dev)

    learned = learn_rewriter(relation.lm, train, dev, BerteseParams(learning_rate=1e-3, epochs=2))

    assert len(learned.history) == 3
    answerer = BerteseAnswerer(relation.lm, learned.rewriter, relation.prompts[0])
    assert probe(answerer, relation.dev).precision_at(1) == pytest.approx(max(learned.history))


def test_rewriter_outputs_words_or_vectors(relation, batch):
    ids, _ = batch
    in_words, in_vectors = Rewriter(relation.lm), Rewriter(relation.lm, reads_words=False)
    for rewriter in (in_words, in_vectors):
        rewriter.projection.data.copy_(0.1 * torch.eye(len(rewriter.projection)))

    words = relation.lm.word_embeddings[in_words(ids).words]
    torch.testing.assert_close(in_words(ids).embeddings, words)
    distances = (in_vectors(ids).embeddings - words).square().sum(-1)
    torch.testing.assert_close(distances, in_vectors(ids).distances)
    assert distances.max() > 0.1


@pytest.mark.parametrize("relation", ["made_of"], indirect=True)  # for capitals, the names alone suffice
def test_learned_vectors_lower_training_nll(relation):
    relation = relation._replace(prompts=[relation.lm.encode_prompt(PromptTemplate.parse("<ENT0>, <ENT1>."))])
    train, dev = questions(relation, relation.train), questions(relation, relation.dev)

    learned = learn_rewriter(relation.lm, train, dev, BerteseParams(reads_words=False, learning_rate=3e-4, epochs=6))

    answerer = BerteseAnswerer(relation.lm, learned.rewriter, relation.prompts[0])
    without = PromptSetAnswerer(relation.lm, uniform(relation.prompts[:1]))
    assert probe(answerer, relation.train).nll < 0.7 * probe(without, relation.train).nll


def test_higher_distance_weight_keeps_rewrites_nearer_to_words(relation):
    train, dev = questions(relation, relation.train), questions(relation, relation.dev)
    near, far = (mean_distance(relation, train, dev, weight) for weight in (10.0, 0.0))

    assert near < far


def mean_distance(relation, train, dev, weight):
    torch.manual_seed(0)
    rewriter = Rewriter(relation.lm)
    ids, tails = as_tensors(
        relation.lm, [question for question in train if len(question.query.ids) == len(train[0].query.ids)]
    )
    optimiser = torch.optim.Adam(rewriter.parameters(), lr=0.02)
    for _ in range(10):
        loss = losses(relation.lm, rewriter, ids, tails)
        optimiser.zero_grad()
        (loss.answer + weight * loss.distance).backward()
        optimiser.step()
    return rewriter(ids).distances.mean().item()


def test_rewrites_are_readable(relation, rewriter):
    dev = questions(relation, relation.dev)

    rewrites = rewritten(relation.lm, rewriter, dev)

    assert all(rewrite.before == rewrite.after for rewrite in rewrites)
    assert all("[MASK]" in rewrite.after for rewrite in rewrites)
    assert sum(rewrite.is_right for rewrite in rewrites) / len(dev) == accuracy(relation.lm, rewriter, dev)


def test_learning_without_facts_is_refused(relation):
    with pytest.raises(EngineError, match="at least one training"):
        learn_rewriter(relation.lm, [], questions(relation, relation.dev), BerteseParams())


def test_rewriter_supports_any_tokenizer(tiny_lm):
    rewriter = Rewriter(tiny_lm)
    ids = torch.tensor([[*tiny_lm.tokens.prefix, 40, tiny_lm.mask_id, 41, *tiny_lm.tokens.suffix]])

    assert torch.equal(rewriter(ids).words, ids)
    loss = losses(tiny_lm, rewriter, ids, torch.tensor([50]))
    expected = cross_entropy(tiny_lm.logits_at(ids, torch.tensor([len(tiny_lm.tokens.prefix) + 1])), torch.tensor([50]))
    assert loss.answer.item() == pytest.approx(expected.item(), abs=1e-4)

"""The rewriter: itself at the start, words in what the LM reads, gradients only where they belong."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import cross_entropy

from kgharvest.engine.language_models.loading import load
from kgharvest.engine.probing import probe
from kgharvest.engine.prompt_learning.bertese import (
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
from kgharvest.engine.prompts.prompt_set import PromptSetAnswerer, uniform
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.types import EngineError
from tests.kgharvest.engine.tiny_models import tiny_albert


def questions(known, facts):
    prompt = known.prompts[0]
    return [AnsweredQuestion(known.lm.query(prompt, (len(fact.head), 1), fact.head), fact.tail) for fact in facts.facts]


@pytest.fixture
def batch(known):
    alike = [question for question in questions(known, known.train) if len(question.query.ids) == 9][:8]
    return as_tensors(known.lm, alike or questions(known, known.train)[:1])


@pytest.fixture(params=[True, False], ids=["words", "vectors"])
def rewriter(request, known):
    return Rewriter(known.lm, reads_words=request.param)


def test_at_the_start_every_question_is_rewritten_as_itself(known, rewriter, batch):
    ids, tails = batch
    rewrites = rewriter(ids)

    assert torch.equal(rewrites.words, ids)
    assert rewrites.distances.abs().max() == 0
    assert (n_masks(known, rewrites.words) == 1).all()
    plain = cross_entropy(known.lm.logits_at(ids, positions(known, ids)), tails)
    torch.testing.assert_close(losses(known.lm, rewriter, ids, tails).answer, plain, atol=1e-4, rtol=0)


def test_an_lm_whose_embeddings_are_narrower_than_its_layers_is_rewritten_for(tmp_path):
    lm = load(str(tiny_albert(tmp_path)))
    prompt = lm.encode_prompt(PromptTemplate.parse("the <ENT0> is in <ENT1> ."))
    asked = [
        AnsweredQuestion(lm.query(prompt, (1, 1), lm.encode_entity(head)), lm.encode_entity(tail)[0])
        for head, tail in [("paris", "france"), ("rome", "italy")]
    ]
    ids, tails = as_tensors(lm, asked)
    params = BerteseParams(learning_rate=1e-2, epochs=10)

    learned = learn_rewriter(lm, asked, asked, params)

    assert torch.equal(Rewriter(lm)(ids).words, ids)
    assert losses(lm, learned.rewriter, ids, tails).answer <= losses(lm, Rewriter(lm), ids, tails).answer
    assert len(learned.history) == 11


def n_masks(known, ids):
    return (ids == known.lm.mask_id).sum(1)


def positions(known, ids):
    return (ids == known.lm.mask_id).float().argmax(1)


def test_probing_with_a_rewriter_that_changes_nothing_is_probing_without(known, rewriter):
    with_rewriter = probe(BerteseAnswerer(known.lm, rewriter, known.prompts[0]), known.test)
    without = probe(PromptSetAnswerer(known.lm, uniform(known.prompts[:1])), known.test)

    assert with_rewriter.ranks.tolist() == without.ranks.tolist()
    assert with_rewriter.logprobs == pytest.approx(without.logprobs, abs=1e-3)


def test_answers_are_projected_at_the_mask_alone(known, rewriter):
    """A projection everywhere takes the memory of a vocabulary for every token."""
    shapes = []
    hook = known.lm._head.projection.register_forward_hook(lambda module, inputs, output: shapes.append(output.shape))

    probe(BerteseAnswerer(known.lm, rewriter, known.prompts[0]), known.test)
    accuracy(known.lm, rewriter, questions(known, known.dev))
    hook.remove()

    assert {len(shape) for shape in shapes} == {2}


def test_gradients_reach_the_rewriter_and_not_the_lm(known, rewriter, batch):
    loss = losses(known.lm, rewriter, *batch)

    (loss.answer + loss.distance + loss.mask).backward()

    assert rewriter.projection.grad.abs().max() > 0
    assert known.lm.word_embeddings.grad is None


def test_what_is_read_is_words_and_the_gradient_is_of_what_was_written():
    soft = torch.tensor([1.0, 2.0], requires_grad=True)
    hard = torch.tensor([5.0, -1.0])

    read = straight_through(soft, hard)
    (read * torch.tensor([3.0, 4.0])).sum().backward()

    assert torch.equal(read.detach(), hard)
    assert soft.grad.tolist() == [3.0, 4.0]


def test_the_nearest_word_is_the_nearest():
    words = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    vectors = torch.tensor([[[0.9, 0.1], [0.0, 0.0], [0.2, 1.5]]])

    distances, nearest = nearest_words(vectors, words)

    assert nearest.tolist() == [[1, 0, 2]]
    torch.testing.assert_close(distances, torch.tensor([[0.02, 0.0, 0.29]]))


def test_shares_of_the_mask_add_up_and_sharpen(known, rewriter, batch):
    ids, _ = batch
    shares = rewriter(ids).mask_shares
    torch.testing.assert_close(shares.sum(1), torch.ones(len(ids)))

    rewriter.log_sharpness.data.fill_(9.0)

    torch.testing.assert_close(rewriter(ids).mask_shares.amax(1), torch.ones(len(ids)))
    assert torch.equal(rewriter(ids).mask_shares.argmax(1), positions(known, ids))


def test_two_masks_share_equally(known, rewriter):
    ids = torch.tensor([[*known.lm.tokens.prefix, known.lm.mask_id, known.lm.mask_id, *known.lm.tokens.suffix]])

    shares = rewriter(ids).mask_shares[0].tolist()

    assert shares[1] == pytest.approx(shares[2])
    assert n_masks(known, rewriter(ids).words).item() == 2


def test_special_tokens_around_a_question_are_never_rewritten(known, rewriter, batch):
    ids, _ = batch
    rewriter.projection.data.copy_(5 * torch.eye(len(rewriter.projection)))

    rewrites = rewriter(ids)

    assert torch.equal(rewrites.words[:, [0, -1]], ids[:, [0, -1]])
    assert not torch.equal(rewrites.words, ids)
    assert mask_vectors(known.lm, rewrites).shape == (len(ids), known.lm.output_embeddings.shape[1])


def test_learning_never_ends_below_its_start_on_dev(known):
    train, dev = questions(known, known.train), questions(known, known.dev)

    learned = learn_rewriter(known.lm, train, dev, BerteseParams(learning_rate=1e-3, epochs=2))

    assert len(learned.history) == 3
    answerer = BerteseAnswerer(known.lm, learned.rewriter, known.prompts[0])
    assert probe(answerer, known.dev).precision_at(1) == pytest.approx(max(learned.history))


def test_what_the_lm_reads_is_words_or_else_the_vectors(known, batch):
    ids, _ = batch
    in_words, in_vectors = Rewriter(known.lm), Rewriter(known.lm, reads_words=False)
    for rewriter in (in_words, in_vectors):
        rewriter.projection.data.copy_(0.1 * torch.eye(len(rewriter.projection)))

    words = known.lm.word_embeddings[in_words(ids).words]
    torch.testing.assert_close(in_words(ids).embeddings, words)
    distances = (in_vectors(ids).embeddings - words).square().sum(-1)
    torch.testing.assert_close(distances, in_vectors(ids).distances)
    assert distances.max() > 0.1


@pytest.mark.parametrize("known", ["made_of"], indirect=True)  # capitals are called up by their names alone
def test_vectors_learn_to_ask_better(known):
    known = known._replace(prompts=[known.lm.encode_prompt(PromptTemplate.parse("<ENT0>, <ENT1>."))])
    train, dev = questions(known, known.train), questions(known, known.dev)

    learned = learn_rewriter(known.lm, train, dev, BerteseParams(reads_words=False, learning_rate=3e-4, epochs=6))

    answerer = BerteseAnswerer(known.lm, learned.rewriter, known.prompts[0])
    without = PromptSetAnswerer(known.lm, uniform(known.prompts[:1]))
    assert probe(answerer, known.train).nll < 0.7 * probe(without, known.train).nll


def test_a_heavier_price_of_distance_keeps_rewrites_nearer_to_words(known):
    train, dev = questions(known, known.train), questions(known, known.dev)
    near, far = (mean_distance(known, train, dev, weight) for weight in (10.0, 0.0))

    assert near < far


def mean_distance(known, train, dev, weight):
    torch.manual_seed(0)
    rewriter = Rewriter(known.lm)
    ids, tails = as_tensors(
        known.lm, [question for question in train if len(question.query.ids) == len(train[0].query.ids)]
    )
    optimiser = torch.optim.Adam(rewriter.parameters(), lr=0.02)
    for _ in range(10):
        loss = losses(known.lm, rewriter, ids, tails)
        optimiser.zero_grad()
        (loss.answer + weight * loss.distance).backward()
        optimiser.step()
    return rewriter(ids).distances.mean().item()


def test_rewrites_can_be_read(known, rewriter):
    question = questions(known, known.dev)[0].query

    assert len(set(rewritten(known.lm, rewriter, [question])[0])) == 1
    assert "[MASK]" in rewritten(known.lm, rewriter, [question])[0][0]


def test_without_facts_there_is_a_sentence(known):
    with pytest.raises(EngineError, match="at least one training"):
        learn_rewriter(known.lm, [], questions(known, known.dev), BerteseParams())


def test_any_tokenizer_will_do(tiny_lm):
    rewriter = Rewriter(tiny_lm)
    ids = torch.tensor([[*tiny_lm.tokens.prefix, 40, tiny_lm.mask_id, 41, *tiny_lm.tokens.suffix]])

    assert torch.equal(rewriter(ids).words, ids)
    loss = losses(tiny_lm, rewriter, ids, torch.tensor([50]))
    expected = cross_entropy(tiny_lm.logits_at(ids, torch.tensor([len(tiny_lm.tokens.prefix) + 1])), torch.tensor([50]))
    assert loss.answer.item() == pytest.approx(expected.item(), abs=1e-4)

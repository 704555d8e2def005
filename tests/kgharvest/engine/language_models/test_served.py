"""LMs behind a server that gives log-probabilities: the same scores, and the same search as far as they reach."""

from __future__ import annotations

import numpy as np
import pytest
from transformers import AutoTokenizer

from kgharvest.engine.entities import EntityVocabulary
from kgharvest.engine.filters import FILTERS, EntityFilter
from kgharvest.engine.harvest import harvest
from kgharvest.engine.language_models.served.names import served_name
from kgharvest.engine.language_models.served.served_lm import (
    CompletionsClient,
    ServedLM,
    ServerFailed,
    check_gives_logprobs,
    fewer_ranked,
)
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.ranking import TokenRanker
from kgharvest.engine.scoring import entity_logprobs
from kgharvest.engine.search import BestFirstSearch
from kgharvest.engine.types import HarvestParams, HarvestSpec, UnsupportedModel
from tests.fake_chat_endpoint import Reply, serving
from tests.fake_lm_server import TinyServer, reply, serving_lm

PROMPTS = [PromptTemplate.parse(text) for text in ("<ENT0> is the capital of <ENT1> .", "in <ENT1> the <ENT0> can .")]
TUPLES = [("paris", "france"), ("rome fish", "italy"), ("paris", "dog cat")]
PARAMS = HarvestParams(candidates=20, max_entity_repeats=None, disabled_filters=frozenset(FILTERS), batch_size=64)
EVERY_TOKEN = 10_000


@pytest.fixture(scope="module")
def tokenizer(folder_of):
    return AutoTokenizer.from_pretrained(folder_of("gpt2"))


@pytest.fixture
def here(tiny):
    return tiny("gpt2")


@pytest.fixture
def served(folder_of, tokenizer):
    """Return a function that serves the tiny LM and gives an LM that asks it."""
    opened = []

    def serve(**how):
        server = serving_lm(TinyServer(folder_of("gpt2"), **how))
        opened.append(server)
        return lm_at(server.__enter__().url, tokenizer, n_ranked=how.get("most_ranked", 20))

    yield serve
    for server in opened:
        server.__exit__(None, None, None)


def lm_at(url, tokenizer, n_ranked=20):
    client = CompletionsClient("The LM's server", url, "tiny", "", 20.0, 3, sleep=lambda s: None, failure=ServerFailed)
    client.n_ranked = n_ranked
    return ServedLM(client, tokenizer, "served", "as served")


def quiet() -> None:
    """Be the tick of a test that does not look at progress."""


@pytest.mark.parametrize("echoes", [False, True])
def test_scores_are_those_of_the_same_lm_here(here, served, echoes):
    lm = served(echoes=echoes)
    encoded = [tuple(here.encode_entity(entity) for entity in entities) for entities in TUPLES]

    logprobs = entity_logprobs(lm, [lm.encode_prompt(prompt) for prompt in PROMPTS], encoded, 8, quiet)

    expected = entity_logprobs(here, [here.encode_prompt(prompt) for prompt in PROMPTS], encoded, 8, quiet)
    np.testing.assert_allclose(logprobs, expected, atol=1e-4)


def search(lm, ranker, prompts):
    found = BestFirstSearch(
        ranker, EntityVocabulary(lm, EntityFilter(prompts, PARAMS.disabled_filters)), PARAMS, lambda n: None
    )
    found.run([(1, 1)])
    return found


def search_here(lm, prompts):
    encoded = [lm.encode_prompt(prompt) for prompt in prompts]
    return search(lm, TokenRanker(lm, encoded, [1 / len(prompts)] * len(prompts), 64), prompts)


def search_there(lm, prompts):
    encoded = [lm.encode_prompt(prompt) for prompt in prompts]
    return search(lm, lm.ranker(encoded, [1 / len(prompts)] * len(prompts), 64), prompts)


def test_where_every_token_is_named_the_search_finds_the_same_list(here, served):
    found = search_there(served(most_ranked=EVERY_TOKEN), PROMPTS[:1])

    expected = search_here(here, PROMPTS[:1])
    assert [candidate.surface for candidate in found.tuples] == [candidate.surface for candidate in expected.tuples]
    mtls = [candidate.mtl for candidate in expected.tuples]
    assert [candidate.mtl for candidate in found.tuples] == pytest.approx(mtls, abs=1e-4)
    assert (found.n_proved, found.notice) == (None, None)


@pytest.mark.parametrize("most_ranked", [80, 90])
def test_where_few_tokens_are_named_the_part_that_is_proved_is_the_same(here, served, most_ranked):
    found = search_there(served(most_ranked=most_ranked), PROMPTS[:1])

    expected = [candidate.surface for candidate in search_here(here, PROMPTS[:1]).tuples]
    assert 0 < found.n_proved < PARAMS.candidates
    assert [candidate.surface for candidate in found.tuples][: found.n_proved] == expected[: found.n_proved]
    assert found.notice.startswith(f"The first {found.n_proved} of {len(found.tuples)} proposed tuples are proved")


def test_the_more_tokens_are_named_the_more_is_proved(served):
    few, more = (search_there(served(most_ranked=n), PROMPTS[:1]).n_proved for n in (20, 90))

    assert few < more


def test_several_prompts_propose_by_the_mean_of_their_log_probabilities(here, served):
    """Every tuple of one-token entities, scored token by token in each prompt, sorted by its worst mean."""
    whole = search_there(served(most_ranked=EVERY_TOKEN), PROMPTS)
    part = search_there(served(most_ranked=100), PROMPTS)

    best = sorted(worst_means(here), reverse=True)[: PARAMS.candidates]
    assert [candidate.mtl for candidate in whole.tuples] == pytest.approx(best, abs=1e-4)
    assert 0 < part.n_proved < PARAMS.candidates
    proved = [candidate.mtl for candidate in part.tuples[: part.n_proved]]
    assert proved == pytest.approx(best[: part.n_proved], abs=1e-4)


def worst_means(lm):
    """Return the MTL of each pair of one-token entities, of those equal after case-folding the best."""
    encoded = [lm.encode_prompt(prompt) for prompt in PROMPTS]
    tokens = [(int(token),) for token in np.flatnonzero(lm.starts_entity)]
    texts = lm.canonical_texts(tokens)
    words = [(text, token) for text, token in zip(texts, tokens, strict=True) if text is not None]
    best = {}
    for head, head_ids in words:
        pairs = [(head_ids, tail_ids) for _, tail_ids in words]
        # Every token and every line's end is an entity of its own to the scoring: (E, P, 4).
        of_prompts = np.stack([token_logprobs(lm, prompt, pairs) for prompt in encoded], axis=1)
        for (tail, _), mtl in zip(words, of_prompts.mean(axis=1).min(axis=-1).tolist(), strict=True):
            key = (head.casefold(), tail.casefold())
            best[key] = max(mtl, best.get(key, -np.inf))
    return best.values()


def token_logprobs(lm, prompt, pairs):
    """Return (E, 4): the log-probability of each token and of each line's end, in order."""
    end = lm.entity_end
    rows = [(*head, *end, *tail, *end) for head, tail in pairs]
    queries = [lm.query(prompt, (1, 1), row[:filled]) for row in rows for filled in range(len(row))]
    logprobs = lm.logits(lm.vectors(queries, 256, quiet)).log_softmax(-1)
    targets = [token for row in rows for token in row]
    return logprobs[range(len(targets)), targets].view(len(rows), -1).numpy()


def test_a_harvest_through_a_server_is_that_of_the_lm_here(here, served):
    params = HarvestParams(candidates=20, max_entity_tokens=1, disabled_filters=frozenset(FILTERS))
    spec = HarvestSpec("capital_of", (PROMPTS[0].text,), (("paris", "france"), ("rome", "italy")), "human", (), params)

    result, expected = harvest(spec, served(most_ranked=EVERY_TOKEN)), harvest(spec, here)

    assert [scored.entities for scored in result.tuples] == [scored.entities for scored in expected.tuples]
    scores = [scored.score for scored in expected.tuples]
    assert [scored.score for scored in result.tuples] == pytest.approx(scores, abs=1e-4)
    assert result.notice == expected.notice


def test_what_needs_whole_distributions_is_said(served):
    with pytest.raises(UnsupportedModel, match="requires complete distributions"):
        served().logits(None)


# -- servers that do otherwise -----------------------------------------------------------------------------------------


def test_the_number_of_tokens_that_a_server_names_is_learnt_from_its_refusal(folder_of, tokenizer):
    with serving_lm(TinyServer(folder_of("gpt2"), most_ranked=7)) as fake:
        lm = lm_at(fake.url, tokenizer, n_ranked=100)
        (ranked,) = lm.next_tokens([(1, 2, 3)], quiet)

    assert len(ranked) == lm.client.n_ranked == 7
    assert [request["logprobs"] for request in fake.requests] == [100, 7]


def test_a_refusal_that_names_no_number_is_met_with_fewer():
    def refused(asked):
        said = Reply(400, b'{"error": {"message": "logprobs is too large"}}')
        return fewer_ranked(type("", (), {"status": said.status, "text": said.body.decode()}), asked)

    assert [refused(asked) for asked in (100, 20, 5)] == [20, 5, None]


def test_passing_trouble_is_tried_again(folder_of, tokenizer):
    server = TinyServer(folder_of("gpt2"))
    troubles = [Reply(429, b"", (("Retry-After", "0"),)), Reply(503)]
    with serving(lambda body: troubles.pop() if troubles else server.answer(body)) as fake:
        assert len(lm_at(fake.url, tokenizer).next_tokens([(1, 2, 3)], quiet)) == 1
        assert len(fake.requests) == 3


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (Reply(is_cut=True, body=b'{"choices": []}' * 50), r"cannot be reached \(RemoteProtocolError\) in 3 attempts"),
        (Reply(503), r"status 503 in 3 attempts"),
        (reply({"choices": []}), r"did not return log-probabilities"),
        (Reply(200, b"<html>"), r"did not return log-probabilities"),
        (reply([1]), r"did not return log-probabilities"),
        (
            reply({"choices": [{"index": 0, "logprobs": {"top_logprobs": [{" dog": -1}]}}]}),
            r"identifies tokens by text",
        ),
        (
            reply({"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:1": 2}]}}]}),
            r"did not return log-prob",
        ),
        (reply({"choices": [{"index": 0, "logprobs": {"top_logprobs": [{}]}}]}), r"did not return log-probabilities"),
        (reply({"choices": [{"index": 0, "text": "x"}]}), r"did not return log-probabilities"),
        (Reply(404), r"no model 'tiny'"),
        (Reply(401), r"rejected the key"),
    ],
)
def test_what_is_no_answer_is_said(tokenizer, answer, sentence):
    with serving(lambda body: answer) as fake, pytest.raises(ServerFailed, match=sentence):
        lm_at(fake.url, tokenizer).next_tokens([(1, 2, 3)], quiet)


def test_a_server_without_log_probabilities_of_prompts_is_said(tokenizer):
    with serving(lambda body: reply({"choices": [{"index": 0, "text": "x"}]})) as fake:
        lm = lm_at(fake.url, tokenizer)
        with pytest.raises(ServerFailed, match="neither prompt_logprobs nor echo"):
            lm.target_logprobs([lm.query(lm.encode_prompt(PROMPTS[0]), (1, 1), ())], [3], quiet)


class Sampler(TinyServer):
    """Ranks by what it samples from: its likeliest tokens alone, at a temperature of a half."""

    def choice(self, index, ids, body):
        choice = super().choice(index, ids, body)
        for top in choice.get("logprobs", {}).get("top_logprobs", []):
            total = np.logaddexp.reduce([2 * logprob for logprob in top.values()])
            top.update({name: 2 * logprob - total for name, logprob in top.items()})
        return choice


def test_a_server_that_ranks_by_another_distribution_than_it_scores_by_is_refused(folder_of, tokenizer):
    with serving_lm(TinyServer(folder_of("gpt2"))) as fake:
        check_gives_logprobs(lm_at(fake.url, tokenizer))
    with serving_lm(Sampler(folder_of("gpt2"))) as fake, pytest.raises(ServerFailed, match="before sampl"):
        check_gives_logprobs(lm_at(fake.url, tokenizer))


def test_a_refusal_of_the_key_is_said_as_such_and_not_remembered(folder_of, tokenizer):
    server, refusals = TinyServer(folder_of("gpt2")), [Reply(401)]
    with serving(lambda body: refusals.pop() if refusals else server.answer(body)) as fake:
        lm = lm_at(fake.url, tokenizer)
        with pytest.raises(ServerFailed, match="rejected the key"):
            lm.client.token_logprobs([(1, 2, 3)], quiet)
        lm.client.token_logprobs([(1, 2, 3)], quiet)

    assert "prompt_logprobs" in fake.requests[-1]


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("http://gpu:8000/v1#qwen", ("http://gpu:8000/v1", "qwen", "qwen")),
        ("https://lm.example/v1/#Qwen/Qwen3-8B", ("https://lm.example/v1", "Qwen/Qwen3-8B", "Qwen/Qwen3-8B")),
        ("http://gpu:8000/v1#/models/q@Qwen/Qwen3-8B", ("http://gpu:8000/v1", "/models/q", "Qwen/Qwen3-8B")),
        ("bert-base-cased", None),
        ("./folder#1", None),
    ],
)
def test_a_name_says_where_which_model_and_whose_tokenizer(name, parts):
    assert served_name(name) == parts

"""Served LMs: scores and search results match the same LM loaded locally, up to the server's ranking depth."""

from __future__ import annotations

from dataclasses import replace

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
def local(tiny):
    return tiny("gpt2")


@pytest.fixture
def served(folder_of, tokenizer):
    """Return a function that serves the tiny LM and returns a client LM."""
    opened = []

    def serve(**options):
        server = serving_lm(TinyServer(folder_of("gpt2"), **options))
        opened.append(server)
        return lm_at(server.__enter__().url, tokenizer, n_ranked=options.get("most_ranked", 20))

    yield serve
    for server in opened:
        server.__exit__(None, None, None)


def lm_at(url, tokenizer, n_ranked=20):
    client = CompletionsClient("The LM's server", url, "tiny", "", 20.0, 3, sleep=lambda s: None, failure=ServerFailed)
    client.n_ranked = n_ranked
    return ServedLM(client, tokenizer, "served", "as served")


def ignore_tick() -> None:
    """Ignore progress ticks."""


@pytest.mark.parametrize("echoes", [False, True])
def test_served_scores_match_local_lm(local, served, echoes):
    lm = served(echoes=echoes)
    encoded = [tuple(local.encode_entity(entity) for entity in entities) for entities in TUPLES]

    logprobs = entity_logprobs(lm, [lm.encode_prompt(prompt) for prompt in PROMPTS], encoded, 8, ignore_tick)

    expected = entity_logprobs(local, [local.encode_prompt(prompt) for prompt in PROMPTS], encoded, 8, ignore_tick)
    np.testing.assert_allclose(logprobs, expected, atol=1e-4)


def search(lm, ranker, prompts):
    found = BestFirstSearch(
        ranker, EntityVocabulary(lm, EntityFilter(prompts, PARAMS.disabled_filters)), PARAMS, lambda n: None
    )
    found.run([(1, 1)])
    return found


def search_local(lm, prompts):
    encoded = [lm.encode_prompt(prompt) for prompt in prompts]
    return search(lm, TokenRanker(lm, encoded, [1 / len(prompts)] * len(prompts), 64), prompts)


def search_served(lm, prompts):
    encoded = [lm.encode_prompt(prompt) for prompt in prompts]
    return search(lm, lm.ranker(encoded, [1 / len(prompts)] * len(prompts), 64), prompts)


def test_search_matches_local_lm_if_every_token_is_ranked(local, served):
    found = search_served(served(most_ranked=EVERY_TOKEN), PROMPTS[:1])

    expected = search_local(local, PROMPTS[:1])
    assert [candidate.surface for candidate in found.tuples] == [candidate.surface for candidate in expected.tuples]
    mtls = [candidate.mtl for candidate in expected.tuples]
    assert [candidate.mtl for candidate in found.tuples] == pytest.approx(mtls, abs=1e-4)
    assert (found.n_proved, found.notice) == (None, None)


@pytest.mark.parametrize("most_ranked", [80, 90])
def test_proved_part_of_search_matches_local_lm(local, served, most_ranked):
    found = search_served(served(most_ranked=most_ranked), PROMPTS[:1])

    expected = [candidate.surface for candidate in search_local(local, PROMPTS[:1]).tuples]
    assert 0 < found.n_proved < PARAMS.candidates
    assert [candidate.surface for candidate in found.tuples][: found.n_proved] == expected[: found.n_proved]
    assert found.notice.startswith(f"The first {found.n_proved} of {len(found.tuples)} proposed tuples are proved")


def test_more_ranked_tokens_prove_more_tuples(served):
    few, more = (search_served(served(most_ranked=n), PROMPTS[:1]).n_proved for n in (20, 90))

    assert few < more


def test_several_prompts_rank_by_mean_log_probability(local, served):
    """Compare with all pairs of one-token entities, scored per token and prompt, and sorted by the smallest mean."""
    whole = search_served(served(most_ranked=EVERY_TOKEN), PROMPTS)
    part = search_served(served(most_ranked=100), PROMPTS)

    best = sorted(worst_means(local), reverse=True)[: PARAMS.candidates]
    assert [candidate.mtl for candidate in whole.tuples] == pytest.approx(best, abs=1e-4)
    assert 0 < part.n_proved < PARAMS.candidates
    proved = [candidate.mtl for candidate in part.tuples[: part.n_proved]]
    assert proved == pytest.approx(best[: part.n_proved], abs=1e-4)


def worst_means(lm):
    """Return the MTL of each pair of one-token entities; of pairs that are equal after case-folding, the best."""
    encoded = [lm.encode_prompt(prompt) for prompt in PROMPTS]
    tokens = [(int(token),) for token in np.flatnonzero(lm.starts_entity)]
    texts = lm.canonical_texts(tokens)
    words = [(text, token) for text, token in zip(texts, tokens, strict=True) if text is not None]
    best = {}
    for head, head_ids in words:
        pairs = [(head_ids, tail_ids) for _, tail_ids in words]
        # Each token and each line end is scored separately: (E, P, 4).
        of_prompts = np.stack([token_logprobs(lm, prompt, pairs) for prompt in encoded], axis=1)
        for (tail, _), mtl in zip(words, of_prompts.mean(axis=1).min(axis=-1).tolist(), strict=True):
            key = (head.casefold(), tail.casefold())
            best[key] = max(mtl, best.get(key, -np.inf))
    return best.values()


def token_logprobs(lm, prompt, pairs):
    """Return (E, 4): the log-probabilities of each token and each line end, in order."""
    end = lm.entity_end
    rows = [(*head, *end, *tail, *end) for head, tail in pairs]
    queries = [lm.query(prompt, (1, 1), row[:filled]) for row in rows for filled in range(len(row))]
    logprobs = lm.logits(lm.vectors(queries, 256, ignore_tick)).log_softmax(-1)
    targets = [token for row in rows for token in row]
    return logprobs[range(len(targets)), targets].view(len(rows), -1).numpy()


def test_served_harvest_matches_local_harvest(local, served):
    params = HarvestParams(candidates=20, max_entity_tokens=1, disabled_filters=frozenset(FILTERS))
    spec = HarvestSpec("capital_of", (PROMPTS[0].text,), (("paris", "france"), ("rome", "italy")), "human", (), params)

    result, expected = harvest(spec, served(most_ranked=EVERY_TOKEN)), harvest(spec, local)

    assert [scored.entities for scored in result.tuples] == [scored.entities for scored in expected.tuples]
    scores = [scored.score for scored in expected.tuples]
    assert [scored.score for scored in result.tuples] == pytest.approx(scores, abs=1e-4)
    assert result.notice == expected.notice


def test_order_by_consistency_is_refused(served):
    params = HarvestParams(order="consistency")
    spec = HarvestSpec("capital_of", (PROMPTS[0].text,), (("paris", "france"), ("rome", "italy")), "human", (), params)

    with pytest.raises(UnsupportedModel, match=r"lists only some next tokens.* Use the order mtl"):
        harvest(spec, served())


def test_complete_distributions_are_refused(served):
    with pytest.raises(UnsupportedModel, match="requires complete distributions"):
        served().logits(None)


# Nonstandard servers


def test_ranking_limit_is_learned_from_refusal(folder_of, tokenizer):
    with serving_lm(TinyServer(folder_of("gpt2"), most_ranked=7)) as fake:
        lm = lm_at(fake.url, tokenizer, n_ranked=100)
        (ranked,) = lm.next_tokens([(1, 2, 3)], ignore_tick)

    assert len(ranked) == lm.client.n_ranked == 7
    assert [request["logprobs"] for request in fake.requests] == [100, 7]


def test_refusal_without_limit_is_retried_with_fewer_tokens():
    def refused(n_ranked):
        response = Reply(400, b'{"error": {"message": "logprobs is too large"}}')
        return fewer_ranked(type("", (), {"status": response.status, "text": response.body.decode()}), n_ranked)

    assert [refused(n_ranked) for n_ranked in (100, 20, 5)] == [20, 5, None]


def test_temporary_errors_are_retried(folder_of, tokenizer):
    server = TinyServer(folder_of("gpt2"))
    errors = [Reply(429, b"", (("Retry-After", "0"),)), Reply(503)]
    with serving(lambda body: errors.pop() if errors else server.answer(body)) as fake:
        assert len(lm_at(fake.url, tokenizer).next_tokens([(1, 2, 3)], ignore_tick)) == 1
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
def test_invalid_response_raises_server_failed(tokenizer, answer, sentence):
    with serving(lambda body: answer) as fake, pytest.raises(ServerFailed, match=sentence):
        lm_at(fake.url, tokenizer).next_tokens([(1, 2, 3)], ignore_tick)


def test_missing_prompt_logprobs_are_reported(tokenizer):
    with serving(lambda body: reply({"choices": [{"index": 0, "text": "x"}]})) as fake:
        lm = lm_at(fake.url, tokenizer)
        with pytest.raises(ServerFailed, match="neither prompt_logprobs nor echo"):
            lm.target_logprobs([lm.query(lm.encode_prompt(PROMPTS[0]), (1, 1), ())], [3], ignore_tick)


class Sampler(TinyServer):
    """Server that ranks by its sampling distribution: only the likeliest tokens, at a temperature of 0.5."""

    def choice(self, index, ids, body):
        choice = super().choice(index, ids, body)
        for top in choice.get("logprobs", {}).get("top_logprobs", []):
            total = np.logaddexp.reduce([2 * logprob for logprob in top.values()])
            top.update({name: 2 * logprob - total for name, logprob in top.items()})
        return choice


def test_server_ranking_by_sampling_distribution_is_refused(folder_of, tokenizer):
    with serving_lm(TinyServer(folder_of("gpt2"))) as fake:
        check_gives_logprobs(lm_at(fake.url, tokenizer))
    with serving_lm(Sampler(folder_of("gpt2"))) as fake, pytest.raises(ServerFailed, match="before sampl"):
        check_gives_logprobs(lm_at(fake.url, tokenizer))


def test_rejected_key_is_reported_and_not_cached(folder_of, tokenizer):
    server, refusals = TinyServer(folder_of("gpt2")), [Reply(401)]
    with serving(lambda body: refusals.pop() if refusals else server.answer(body)) as fake:
        lm = lm_at(fake.url, tokenizer)
        with pytest.raises(ServerFailed, match="rejected the key"):
            lm.client.token_logprobs([(1, 2, 3)], ignore_tick)
        lm.client.token_logprobs([(1, 2, 3)], ignore_tick)

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
def test_served_name_splits_url_model_and_tokenizer(name, parts):
    assert served_name(name) == parts


def test_harvest_with_heads_matches_local_lm(local, served):
    params = replace(PARAMS, heads=("paris", "dog"), max_entity_tokens=1, candidates=5)
    spec = HarvestSpec("r", ("<ENT0> is in <ENT1>",), (("rome", "italy"), ("cat", "fish")), "human", params=params)

    result = harvest(spec, served(most_ranked=EVERY_TOKEN))

    expected = harvest(spec, local)
    assert len(result.tuples) >= 8
    assert {scored.entities[0] for scored in result.tuples} == {"paris", "dog"}
    assert [scored.surface for scored in result.tuples] == [scored.surface for scored in expected.tuples]
    scores = [scored.score for scored in expected.tuples]
    assert [scored.score for scored in result.tuples] == pytest.approx(scores, abs=1e-3)

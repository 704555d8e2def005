"""Connection to an LM server: load its tokenizer from the hub or a folder, and check the server."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from kgharvest.engine.language_models.families import check_tokenizer
from kgharvest.engine.language_models.loading import (
    check_not_hidden,
    damage_said,
    files_of,
    silence_libraries,
)
from kgharvest.engine.language_models.served.client import CompletionsClient, ServerFailed
from kgharvest.engine.language_models.served.names import ServedName
from kgharvest.engine.language_models.served.served_lm import ServedLM
from kgharvest.engine.prompts.template import PromptTemplate
from kgharvest.engine.scoring import entity_logprobs
from kgharvest.engine.types import ModelNotFound

TIMEOUT_S = 120.0
SAME_WITHIN = 0.3  # nats; rounding and summation order in bfloat16 change a logit by less than 0.1
TRIAL = PromptTemplate.parse("the <ENT0> is a <ENT1>")


def load_served(served: ServedName, name: str, revision: str | None, key_variable: str) -> ServedLM:
    """Return the LM behind a server, ready for queries. revision: of the tokenizer; the server determines the weights.

    Raises ModelNotFound for the tokenizer, UnsupportedModel, or ServerFailed.
    """
    silence_libraries()
    check_not_hidden(served.tokenizer)
    try:
        with damage_said(served.tokenizer):
            is_folder = Path(served.tokenizer).is_dir()
            files = {"revision": revision} if is_folder else files_of(served.tokenizer, revision)
            tokenizer = AutoTokenizer.from_pretrained(served.tokenizer, **files)
            check_tokenizer(tokenizer, max(tokenizer.get_vocab().values()) + 1, served.tokenizer)
    except ModelNotFound as error:
        raise ModelNotFound(
            f"The tokenizer {served.tokenizer!r} of the served LM {served.model!r} is neither a complete local folder "
            "nor available from the hub. Add its hub id or folder after @, for example "
            f"{served.base_url}#{served.model}@TOKENIZER."
        ) from error
    client = CompletionsClient(
        "The LM's server",
        served.base_url,
        served.model,
        key_variable,
        TIMEOUT_S,
        advice="check that it runs, or try later",
        failure=ServerFailed,
    )
    commit = files["revision"]
    lm = ServedLM(client, tokenizer, name, f"as served, tokenizer {commit}" if commit else "as served")
    check_gives_logprobs(lm)
    return lm


def check_gives_logprobs(lm: ServedLM) -> None:
    """Check that the server returns both kinds of log-probabilities, from the same distribution. Raises ServerFailed.

    A truncated or sharpened distribution gives no bound on the tokens that it omits.
    """
    prompt = lm.encode_prompt(TRIAL)
    entity = next((int(token),) for token in lm.starts_entity.nonzero()[0])
    entity_logprobs(lm, [prompt], [(entity, entity)], 1, lambda: None)
    query = lm.query(prompt, (1, 1), ())
    [ranked] = lm.next_tokens([query.ids], lambda: None)
    *_, (token, logprob) = ranked.items()
    [as_scored] = lm.target_logprobs([query], [token], lambda: None)
    if abs(logprob - as_scored) > SAME_WITHIN:
        raise ServerFailed(
            f"The server of {lm.name} returns inconsistent log-probabilities for the same token: {logprob:.2f} nats "
            f"as next token, {as_scored:.2f} nats in a text. Configure it to return log-probabilities before sampling "
            "(vLLM: --logprobs-mode raw_logprobs)."
        )

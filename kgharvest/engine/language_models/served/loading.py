"""Reach an LM behind a server: its tokenizer from the hub or a folder, the server by one question."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoTokenizer

from kgharvest.engine.language_models.capabilities import check_tokenizer
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
SAME_WITHIN = 0.3  # nats; what bfloat16 and another order of summation make of one logit is below a tenth
TRIAL = PromptTemplate.parse("the <ENT0> is a <ENT1>")


def load_served(served: ServedName, name: str, revision: str | None, key_variable: str) -> ServedLM:
    """Return the LM behind a server, ready to be asked. revision: of the tokenizer; which weights it has, it knows.

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
            f"The tokenizer {served.tokenizer!r} of the LM {served.model!r} behind a server is neither a folder with "
            "a whole one nor on the hub, as far as that can be asked from here; name it after @, by a hub id or a "
            f"folder, as in {served.base_url}#{served.model}@TOKENIZER."
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
    """Ask once for both that the engine needs, and whether they are of one distribution. Raises ServerFailed.

    What a server says after it has cut off or sharpened a distribution proves nothing of the tokens that it leaves out.
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
            f"The server of {lm.name} gives the same token {logprob:.2f} nats when it ranks what comes next and "
            f"{as_scored:.2f} when it scores a text; have it give log-probabilities as they were before sampling "
            "(vLLM: --logprobs-mode raw_logprobs)."
        )

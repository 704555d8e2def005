"""Log-probability server with the API of vLLM and the log-probabilities of a tiny causal LM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from tests.fake_chat_endpoint import FakeEndpoint, Reply, serving

JSON = (("Content-Type", "application/json"),)


class TinyServer:
    """model: folder of a model, or function of ids (1, T) that returns an object with `logits` (1, T, V).

    most_ranked: maximum number of next tokens in a reply. echoes: supports `echo` instead of `prompt_logprobs`.
    """

    def __init__(self, model: Any, most_ranked: int = 20, echoes: bool = False):
        self.model = model if callable(model) else AutoModelForCausalLM.from_pretrained(model).eval()
        self.most_ranked, self.echoes = most_ranked, echoes

    def answer(self, body: dict[str, Any]) -> Reply:
        n_requested = body.get("logprobs") or 0
        if n_requested > self.most_ranked:
            message = (
                f"Requested sample logprobs of {n_requested}, which is greater than max allowed: {self.most_ranked}"
            )
            return reply({"error": {"message": message}}, 400)
        choices = [self.choice(index, ids, body) for index, ids in enumerate(body["prompt"])]
        return reply({"choices": choices[::-1]})

    @torch.no_grad()
    def choice(self, index: int, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        logprobs = torch.log_softmax(self.model(torch.tensor([ids])).logits[0].double(), dim=-1)  # (T, V)
        token_logprobs = [None, *logprobs[range(len(ids) - 1), ids[1:]].tolist()]
        if body.get("echo"):
            return (
                {"index": index, "logprobs": {"token_logprobs": [*token_logprobs, -0.5]}}
                if self.echoes
                else {"index": index}
            )
        if "prompt_logprobs" in body:
            prompt_logprobs = [
                None,
                *({str(token): {"logprob": value}} for token, value in zip(ids[1:], token_logprobs[1:], strict=True)),
            ]
            return {"index": index} if self.echoes else {"index": index, "prompt_logprobs": prompt_logprobs}
        best = logprobs[-1].topk(min(body["logprobs"], logprobs.shape[1]))
        top = {f"token_id:{t}": value for t, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)}
        return {"index": index, "logprobs": {"top_logprobs": [top]}}


def reply(document: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(document).encode(), JSON)


@contextmanager
def serving_lm(server: TinyServer) -> Iterator[FakeEndpoint]:
    with serving(server.answer) as fake:
        yield fake

"""The plugin's worker for vLLM with the weights of the phrase model, also in a core that was started again."""

from __future__ import annotations

from typing import Any

from vllm.tokenizers import cached_tokenizer_from_config

from tests.vllm import phrase_model
from twopass.engines.vllm.plugin.worker import DraftingWorker


class PhraseWorker(DraftingWorker):
    def load_model(self, *arguments: Any, **more: Any) -> None:
        super().load_model(*arguments, **more)
        to_id = cached_tokenizer_from_config(self.model_config).convert_tokens_to_ids
        pairs = phrase_model.NEXT_PHRASE.items()
        phrase_model.set_weights(self, [(to_id(phrase), to_id(following)) for phrase, following in pairs])

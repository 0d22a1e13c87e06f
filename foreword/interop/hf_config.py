"""`config.json`, read strictly: every key is mapped, known to be idle, or refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foreword.errors import UserError

FILE = "config.json"

# Keys of every family without effect on what is computed: records, outputs, generation, training.
IGNORED_KEYS = (
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cls_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "gradient_checkpointing",
    "id2label",
    "initializer_factor",
    "initializer_range",
    "label2id",
    "length_penalty",
    "mask_token_id",
    "max_length",
    "min_length",
    "model_type",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "pad_token_id",
    "prefix",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unk_token_id",
    "use_bfloat16",
    "use_cache",
    "vocab_size",
)
# What we know at one value alone, in every family.
SUPPORTED_VALUES: Mapping[str, Any] = {
    "add_cross_attention": None,
    "cross_attention_hidden_size": None,
    "is_decoder": None,
    "is_encoder_decoder": None,
    "pruned_heads": None,
    "quantization_config": None,
    "tie_encoder_decoder": None,
    "tie_word_embeddings": True,
}
KINDS: Mapping[type, str] = {
    bool: "true or false",
    dict: "a table",
    float: "a number",
    int: "a whole number",
    list: "a list",
    str: "a word",
}


class HFConfig:
    """The keys of a `config.json`, noting which are taken.

    Args:
        keys: what the file holds.
        file: where it lies, for messages.
    """

    def __init__(self, keys: Mapping[str, Any], file: Path = Path(FILE)) -> None:
        self.file = file
        self._keys = dict(keys)
        self._taken: set[str] = set()

    @classmethod
    def load(cls, folder: Path, name: str = FILE) -> HFConfig:
        """Reads the file of a folder, or another of that form.

        Raises:
            UserError: it is missing, broken, or asks for code of its own.
        """
        file = folder / name
        try:
            keys: dict[str, Any] = dict(json.loads(file.read_text(encoding="utf-8")))
        except OSError as error:
            raise UserError(
                f"{folder}: holds no {name}, so it is no Hugging Face model folder"
            ) from error
        except (ValueError, TypeError) as error:
            raise UserError(f"{file}: cannot be read: {error}") from error
        if "auto_map" in keys:
            raise UserError(f"{file}: auto_map: the model wants code of its own, which is not run")
        return cls(keys, file)

    @property
    def model_type(self) -> str:
        """The family's name there."""
        return str(self._keys.get("model_type"))

    @property
    def vocab(self) -> int | None:
        """Rows of the embedding, where it says so."""
        size: int | None = self.get("vocab_size")
        return size

    def get(self, key: str, default: Any = None, *kinds: type) -> Any:
        """The value of `key`, which counts as read.

        Args:
            key: a key of the file.
            default: what it is where the file does not say.
            kinds: what the value may be; of the default's kind if unsaid, or a whole number where
                there is none. A whole number passes for any other.

        Raises:
            UserError: it is of another kind.
        """
        self._taken.add(key)
        value = self._keys.get(key, default)
        if value is None and default is None:
            return None
        kinds = kinds or (int if default is None else type(default),)
        if type(value) not in {*kinds, *((int,) if float in kinds else ())}:
            raise self.refuse(key, " or ".join(KINDS[kind] for kind in kinds))
        return value

    def refuse(self, key: str, known: str) -> UserError:
        """The error for a value that we do not have."""
        value = self._keys.get(key)
        return UserError(f"{self.file}: {key} is {value!r}, and Foreword knows here: {known}")

    def require_all_known(self, neutral: Mapping[str, Any], idle: Iterable[str]) -> None:
        """Makes sure that nothing is left that could change what the model computes.

        Args:
            neutral: keys that we know at one value; None for any value that is not true.
            idle: keys without effect.

        Raises:
            UserError: a key that is not known, or not at this value.
        """
        neutral = {**SUPPORTED_VALUES, **neutral}
        known = {*IGNORED_KEYS, *idle} | self._taken
        for key, value in self._keys.items():
            if key in self._taken:
                continue
            if key in neutral:
                wanted = neutral[key]
                if value != wanted and not (wanted is None and not value):
                    raise self.refuse(key, "no such setting" if wanted is None else repr(wanted))
            elif key not in known and value is not None:
                raise UserError(
                    f"{self.file}: {key} is {value!r}, and Foreword does not know what it means "
                    f"for a {self.model_type}; it is not ignored, for it may change the numbers"
                )

"""`config.json`, read strictly: every key is mapped, known to have no effect, or refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foreword.disk import stored
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
# Keys that are accepted at one value only, in every family; None accepts any that is not true.
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
    """The keys of a `config.json`, with a record of those that were read.

    Args:
        keys: the keys and values of the file.
        file: its path, for messages.
    """

    def __init__(self, keys: Mapping[str, Any], file: Path = Path(FILE)) -> None:
        self.file = file
        self._keys = dict(keys)
        self._read: set[str] = set()

    @classmethod
    def load(cls, folder: Path, name: str = FILE) -> HFConfig:
        """Load the file from a folder, or another file of that form.

        Raises:
            UserError: it is missing, broken, or requires custom code.
        """
        file = folder / name
        if not file.is_file():
            raise UserError(f"{folder}: holds no {name}, so it is not a Hugging Face model folder")
        keys = stored.read(file, is_foreign=True)
        if "auto_map" in keys:
            raise UserError(
                f"{file}: auto_map: the model requires custom code, which is not supported"
            )
        return cls(keys, file)

    @property
    def model_type(self) -> str:
        """The name of the family in `config.json`."""
        return str(self._keys.get("model_type"))

    @property
    def vocab(self) -> int | None:
        """The number of rows of the embedding, if given."""
        size: int | None = self.get("vocab_size")
        return size

    def get(self, key: str, default: Any = None, *kinds: type) -> Any:
        """Return the value of `key`, and record that it was read.

        Args:
            key: a key of the file.
            default: the value if the file lacks the key.
            kinds: the types the value may have; by default the default's type, or int if there is
                no default. An int is accepted as a float.

        Raises:
            UserError: the value is of another type.
        """
        self._read.add(key)
        value = self._keys.get(key, default)
        if value is None and default is None:
            return None
        kinds = kinds or (int if default is None else type(default),)
        if type(value) not in {*kinds, *((int,) if float in kinds else ())}:
            raise self.refuse(key, " or ".join(KINDS[kind] for kind in kinds))
        return value

    def refuse(self, key: str, known: str) -> UserError:
        """Return the error for a value that is not supported."""
        value = self._keys.get(key)
        return UserError(f"{self.file}: {key} is {value!r}, but Foreword supports here: {known}")

    def require_all_known(
        self, supported_values: Mapping[str, Any], ignored_keys: Iterable[str]
    ) -> None:
        """Check that no other key could change what the model computes.

        Args:
            supported_values: keys that are accepted at one value only; None accepts any value that
                is not true.
            ignored_keys: keys without effect.

        Raises:
            UserError: a key is not known, or not supported at its value.
        """
        supported_values = {**SUPPORTED_VALUES, **supported_values}
        known = {*IGNORED_KEYS, *ignored_keys} | self._read
        for key, value in self._keys.items():
            if key in self._read:
                continue
            if key in supported_values:
                supported = supported_values[key]
                if value != supported and not (supported is None and not value):
                    raise self.refuse(
                        key, "no such setting" if supported is None else repr(supported)
                    )
            elif key not in known and value is not None:
                raise UserError(
                    f"{self.file}: {key} is {value!r}, which Foreword does not know for a "
                    f"{self.model_type}; it is not ignored, since it may change the numbers"
                )

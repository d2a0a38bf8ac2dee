"""The models that a run can serve: the tiny maths model, and SmolLM2 from the GGUF file of a package.

`python -m smokestack_payload.model make --kind tiny --out DIR` prints `{"dir": …, "cached": …}`. A folder is complete
(weights, config, generation config, tokenizer, chat template) or absent.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from smokestack_payload.publish import published
from smokestack_payload.recipe import TINY, TinyRecipe

MARKER = "smokestack.json"
"""Small file in every folder made here: what it is, and from which recipe or source."""

IMPORT_REVISION = 1
"""Raised when code changes what an import makes of the same GGUF file."""


def make_tiny(out: Path, recipe: TinyRecipe = TINY) -> tuple[Path, bool]:
    """`out`/base: the complete folder of the untrained model. Returns it, and whether it was there already."""
    base = out / "base"
    marker = {"kind": "tiny", "recipe": recipe.digest()}
    if read_marker(base) == marker:
        return base, True
    if base.exists():
        raise ValueError(f"{base} holds {read_marker(base)}, not {marker}: name another folder or remove this one")
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    tokenizer = byte_tokenizer(recipe)
    special = {token: tokenizer.convert_tokens_to_ids(token) for token in ("<|end|>", "<|pad|>")}
    shape = recipe.architecture
    config = Qwen3Config(
        vocab_size=recipe.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.attention_heads,
        num_key_value_heads=shape.key_value_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_positions,
        tie_word_embeddings=shape.tie_word_embeddings,
        bos_token_id=None,
        eos_token_id=special["<|end|>"],
        pad_token_id=special["<|pad|>"],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = Qwen3ForCausalLM(config).to(torch.float32)
    model.generation_config = GenerationConfig(eos_token_id=special["<|end|>"], pad_token_id=special["<|pad|>"])
    with published(base) as folder:
        save(model, tokenizer, folder, marker)
    return base, False


def byte_tokenizer(recipe: TinyRecipe = TINY) -> Any:
    """One token per byte and the special tokens: nothing to download, nothing outside the vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={char: index for index, char in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(list(recipe.special_tokens))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<|end|>",
        pad_token="<|pad|>",
        model_max_length=recipe.architecture.max_positions,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = recipe.chat_template
    if len(tokenizer) != recipe.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the recipe says {recipe.vocab_size}")
    return tokenizer


def import_smollm2(gguf: Path, out: Path) -> tuple[Path, bool]:
    """The chat model of a GGUF file as a float32 folder below `out` (about 40 s, 538 MB), named after the file's bytes
    and this code's revision. Returns it, and whether it was there already.

    The dequantised weights move into a fresh model: saving the loaded one would keep its quantization settings.
    """
    with gguf.open("rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
    marker = {"kind": "smollm2", "source_sha256": digest, "revision": IMPORT_REVISION}
    target = out / f"float32-{digest[:12]}-r{IMPORT_REVISION}"
    if read_marker(target) == marker:
        return target, True
    if target.exists():
        raise ValueError(f"{target} holds {read_marker(target)}, not {marker}: remove it")
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(**where)
    loaded = AutoModelForCausalLM.from_pretrained(**where, dtype=torch.float32)
    config = AutoConfig.from_pretrained(**where)
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    fresh = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    fresh.load_state_dict(loaded.state_dict())
    fresh.generation_config = loaded.generation_config
    with published(target) as folder:
        save(fresh, tokenizer, folder, marker)
    return target, False


def save(model: Any, tokenizer: Any, folder: Path, marker: dict[str, Any]) -> None:
    """Write a complete model folder; the marker goes last."""
    model.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / MARKER).write_text(json.dumps(marker, sort_keys=True) + "\n", encoding="utf-8")


def read_marker(folder: Path) -> dict[str, Any] | None:
    """The folder's marker; None when the folder was not made here, or is absent."""
    path = folder / MARKER
    if not path.is_file():
        return None
    marker: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return marker


def load(folder: Path, device: str) -> tuple[Any, Any]:
    """Model (float32, on `device`) and tokenizer of a local folder. Nothing is fetched."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.to(device), tokenizer


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m smokestack_payload.model", description=__doc__)
    make = parser.add_subparsers(dest="command", required=True).add_parser("make", help="make a model folder")
    make.add_argument("--kind", choices=("tiny", "smollm2"), required=True)
    make.add_argument("--out", type=Path, required=True)
    make.add_argument("--gguf", type=Path, help="the GGUF file (smollm2)")
    make.add_argument("--warm", action="store_true", help="also run the warm-up and publish OUT/warm (tiny)")
    options = parser.parse_args(argv)
    if (options.kind == "smollm2") != (options.gguf is not None):
        parser.error("--gguf FILE belongs to --kind smollm2, and to it alone")
    if options.warm and options.kind != "tiny":
        parser.error("--warm belongs to --kind tiny")
    if options.kind == "tiny":
        folder, cached = make_tiny(options.out)
    else:
        folder, cached = import_smollm2(options.gguf, options.out)
    if options.warm:
        from smokestack_payload.warmup import warmed

        cached = warmed(folder, options.out / "warm").cached and cached
    sys.stdout.write(json.dumps({"dir": str(folder), "cached": cached}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The tiny model: complete folder, exact vocabulary, the same bytes every time; warm-up, probes and one step."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from conftest import grpo
from smokestack_payload import model as models
from smokestack_payload.fits import spread
from smokestack_payload.learner import Learner, Sample
from smokestack_payload.probes import probe
from smokestack_payload.publish import published
from smokestack_payload.recipe import TINY, TinyRecipe, Warmup
from smokestack_payload.tasks import encode_chat, stop_token_ids
from smokestack_payload.warmup import warmed

COMPLETE = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "model.safetensors",
    "smokestack.json",
}
EASY = TinyRecipe(warmup=Warmup(target_accuracy=0.02, check_every=2, max_steps=60))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, cached = models.make_tiny(tmp_path_factory.mktemp("tiny"), EASY)
    assert not cached
    return folder


@pytest.fixture
def loaded(base: Path) -> tuple[Any, Any]:
    model, tokenizer = models.load(base, "cpu")
    return model.eval(), tokenizer


def test_the_folder_is_complete_and_readable(base: Path) -> None:
    assert {path.name for path in base.iterdir()} == COMPLETE
    assert all(path.stat().st_mode & 0o444 == 0o444 for path in base.iterdir())


def test_a_second_make_finds_it_there(base: Path) -> None:
    assert models.make_tiny(base.parent, EASY) == (base, True)


def test_a_folder_of_another_recipe_is_not_overwritten(base: Path) -> None:
    with pytest.raises(ValueError, match="name another folder"):
        models.make_tiny(base.parent, replace(EASY, seed=1))


def test_the_same_recipe_gives_the_same_bytes(base: Path, tmp_path: Path) -> None:
    again, _ = models.make_tiny(tmp_path, EASY)
    for name in COMPLETE:
        first, second = (hashlib.sha256((folder / name).read_bytes()).hexdigest() for folder in (base, again))
        assert first == second, name


def test_the_vocabulary_is_exactly_the_tokenizers(base: Path, loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    config = json.loads((base / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == len(tokenizer) == TINY.vocab_size == model.get_input_embeddings().num_embeddings


def test_any_text_is_its_bytes_and_comes_back(loaded: tuple[Any, Any]) -> None:
    _, tokenizer = loaded
    for text in ("3+4=", " two  spaces\n", "Füße, 漢字 🙂"):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == len(text.encode())
        assert tokenizer.decode(ids) == text


def test_the_chat_template_opens_the_assistants_turn(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    ids = encode_chat(tokenizer, "3+4=")
    assert tokenizer.convert_ids_to_tokens(ids) == ["<|user|>", *"3+4=", "<|end|>", "<|assistant|>"]
    assert stop_token_ids(model, tokenizer) == [tokenizer.convert_tokens_to_ids("<|end|>")]


def test_the_recipes_hash_needs_no_torch_and_follows_every_constant() -> None:
    code = "import sys, smokestack_payload.recipe as r; print(r.TINY.digest()); assert 'torch' not in sys.modules"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == TINY.digest()
    assert len(printed) == 12
    assert EASY.digest() != TINY.digest() != replace(TINY, seed=1).digest()


def test_the_warm_up_teaches_is_published_whole_and_then_comes_from_the_cache(base: Path, tmp_path: Path) -> None:
    cache = tmp_path / "warm"
    first = warmed(base, cache, EASY)
    assert not first.cached
    assert first.accuracy is not None
    assert first.accuracy >= 0.02
    assert {path.name for path in cache.iterdir()} == COMPLETE
    second = warmed(base, cache, EASY)
    assert (second.cached, second.steps) == (True, 0)
    for (name, one), (_, two) in zip(first.model.named_parameters(), second.model.named_parameters(), strict=True):
        assert torch.equal(one, two), name


def test_a_warm_up_that_cannot_reach_its_aim_says_so_and_publishes_nothing(base: Path, tmp_path: Path) -> None:
    hopeless = replace(EASY, warmup=Warmup(target_accuracy=0.99, check_every=1, max_steps=2))
    with pytest.raises(RuntimeError, match="after 2 steps"):
        warmed(base, tmp_path / "warm", hopeless)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_publication_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), published(tmp_path / "model") as folder:
        (folder / "half").write_text("x", encoding="utf-8")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_of_two_publishers_the_first_wins(tmp_path: Path) -> None:
    place = tmp_path / "model"
    with published(place) as late:
        (late / "who").write_text("late", encoding="utf-8")
        with published(place) as early:
            (early / "who").write_text("early", encoding="utf-8")
    assert (place / "who").read_text(encoding="utf-8") == "early"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_a_probe_with_a_cache_says_what_a_plain_forward_pass_says(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompt = encode_chat(tokenizer, "3+4=")
    found = probe(model, prompt, 4, [])
    tokens = [int(token) for token in found["token_ids"]]
    assert len(tokens) == len(found["logprobs"]) == len(found["margins"]) == 4
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([prompt + tokens])).logits[0], dim=-1)
    assert scores.argmax(-1).tolist()[len(prompt) - 1 : -1] == tokens
    expected = [float(scores[index, token]) for index, token in enumerate((prompt + tokens)[1:])]
    assert found["prompt_logprobs"] + found["logprobs"] == pytest.approx(expected, abs=1e-5)


def test_a_probe_ends_with_the_first_stop_token(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompt = encode_chat(tokenizer, "3+4=")
    first = probe(model, prompt, 4, [])["token_ids"][0]
    assert probe(model, prompt, 4, [int(first)])["token_ids"] == [first]


def logprob(model: Any, sample: Sample) -> float:
    ids = torch.tensor([[*sample.prompt_ids, *sample.token_ids]])
    with torch.no_grad():
        scores = torch.log_softmax(model(ids).logits[0], dim=-1)
    start = len(sample.prompt_ids) - 1
    return sum(float(scores[start + index, token]) for index, token in enumerate(sample.token_ids))


def with_own_logprobs(model: Any, prompt: list[int], tokens: list[int]) -> Sample:
    values = [logprob(model, Sample([*prompt, *tokens[:index]], [token], [])) for index, token in enumerate(tokens)]
    return Sample(prompt, tokens, values)


def test_a_step_makes_the_rewarded_answer_likelier_and_the_other_one_less(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompt = encode_chat(tokenizer, "3+4=")
    right, wrong = with_own_logprobs(model, prompt, [22, 257]), with_own_logprobs(model, prompt, [23, 18, 257])
    before = logprob(model, right), logprob(model, wrong)
    learner = Learner(model, tokenizer.pad_token_id, grpo())
    result = learner.step([[right, wrong]], [[1.0, 0.0]], 0)
    assert logprob(model, right) > before[0]
    assert logprob(model, wrong) < before[1]
    assert result.tokens == 5
    # ratio 1 everywhere: -(2 tokens * 1 + 3 tokens * -1) / 5
    assert result.loss == pytest.approx(0.2, abs=1e-4)
    assert result.mismatch.max_abs < 1e-4
    assert result.grad_norm > 0


def test_a_step_without_any_difference_in_reward_moves_nothing(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    sample = with_own_logprobs(model, encode_chat(tokenizer, "3+4="), [22, 257])
    before = [parameter.clone() for parameter in model.parameters()]
    Learner(model, tokenizer.pad_token_id, grpo()).step([[sample, sample]], [[1.0, 1.0]], 0)
    assert all(torch.equal(one, two) for one, two in zip(before, model.parameters(), strict=True))


def test_rollouts_fit_the_version_that_sampled_them_and_neither_neighbour(loaded: tuple[Any, Any]) -> None:
    model, tokenizer = loaded
    prompt = encode_chat(tokenizer, "3+4=")
    learner = Learner(model, tokenizer.pad_token_id, grpo())
    for version in (0, 1):
        samples = [with_own_logprobs(model, prompt, tokens) for tokens in ([22, 257], [23, 18, 257])]
        stale = Sample(prompt, [22, 257], [value - 0.5 for value in samples[0].engine_logprobs])
        found = learner.step([[*samples, stale]], [[1.0, 0.0, 0.0]], version).fits
        assert [fit.version for fit in found] == list(range(max(version - 1, 0), version + 2))
        for fit in found:
            *own, other = fit.max_abs
            assert all((gap < 1e-4) == (fit.version == version) for gap in own), found
            assert other > 0.1
    weights = [parameter.clone() for parameter in model.parameters()]
    assert not any(torch.equal(one, two) for one, two in zip(weights, learner._former or [], strict=True))


def test_at_most_so_many_rollouts_are_compared_and_evenly_from_all_groups() -> None:
    assert spread(list(range(64)), 16) == list(range(0, 64, 4))
    assert spread(list(range(17)), 16) == list(range(0, 17, 2))
    assert spread([1, 2], 16) == [1, 2]


def test_a_step_in_parts_is_the_step_as_a_whole(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = []
    for limit in (1, 1 << 30):
        monkeypatch.setattr("smokestack_payload.learner.LOGIT_BYTES", limit)
        model, tokenizer = models.load(base, "cpu")
        prompt = encode_chat(tokenizer, "3+4=")
        samples = [Sample(prompt, [20 + index, 257], [-5.0, -5.0]) for index in range(4)]
        result = Learner(model, tokenizer.pad_token_id, grpo()).step([samples], [[1.0, 0.0, 0.0, 1.0]], 0)
        moved.append((result.loss, result.grad_norm))
    assert moved[0] == pytest.approx(moved[1], rel=1e-4)


def test_the_command_line_makes_a_folder_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert models.main(["make", "--kind", "tiny", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"dir": str(tmp_path / "base"), "cached": False}
    assert models.read_marker(tmp_path / "base") == {"kind": "tiny", "recipe": TINY.digest()}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for transformers: an import writes a folder with the GGUF file's bytes in it."""
    fake = MagicMock()
    fake.AutoModelForCausalLM.from_pretrained.side_effect = lambda **where: SimpleNamespace(
        state_dict=dict, generation_config=None, source=Path(where["pretrained_model_name_or_path"], where["gguf_file"])
    )
    monkeypatch.setitem(sys.modules, "transformers", fake)

    def save(_model: Any, _tokenizer: Any, folder: Path, marker: dict[str, Any]) -> None:
        (folder / models.MARKER).write_text(json.dumps(marker), encoding="utf-8")

    monkeypatch.setattr(models, "save", save)


def test_an_imported_model_is_known_by_its_files_bytes_and_by_the_importing_code(
    importable: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gguf = tmp_path / "model.gguf"
    gguf.write_bytes(b"one")
    first, cached = models.import_smollm2(gguf, tmp_path)
    assert not cached
    assert models.import_smollm2(gguf, tmp_path) == (first, True)
    gguf.write_bytes(b"two")
    second, cached = models.import_smollm2(gguf, tmp_path)
    assert (cached, second == first) == (False, False), "other bytes of the same name and size are another model"
    monkeypatch.setattr(models, "IMPORT_REVISION", 2)
    third, cached = models.import_smollm2(gguf, tmp_path)
    assert (cached, third == second) == (False, False)
    marker = models.read_marker(third)
    assert marker is not None
    assert marker["source_sha256"] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("arguments", [["--kind", "smollm2"], ["--kind", "tiny", "--gguf", "x"]])
def test_the_gguf_file_belongs_to_smollm2(arguments: list[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        models.main(["make", *arguments, "--out", str(tmp_path)])
    assert caught.value.code == 2

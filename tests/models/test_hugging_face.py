"""Encoders of folders: whole or cut, with a classifier of their own, with a new one, or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from fedfuse.compute.batches import forward
from fedfuse.models import Classifier, build, check
from fedfuse.models.encoder import Encoder
from fedfuse.models.file import MODEL, Header, load_model, save_model, write_model
from fedfuse.models.hf_name import HfName, parse
from fedfuse.models.transformers_folder import ENCODER, holds, write_encoder
from fedfuse.types import FedfuseError, Snapshot

transformers = pytest.importorskip("transformers")
SHAPE = (8, 20)
SIZES = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}


def texts() -> dict[str, Tensor]:
    ids = torch.tensor([[2, 5, 7, 9, 3], [4, 6, 0, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three layers of BERT, no classifier, pooled by their mean: a folder as sentence-transformers writes it."""
    folder = tmp_path_factory.mktemp("bare")
    torch.manual_seed(3)
    transformers.BertModel(transformers.BertConfig(num_hidden_layers=3, **SIZES)).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    return folder


@pytest.fixture(scope="module")
def distil(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of DistilBERT with a classifier of 3 classes."""
    folder = tmp_path_factory.mktemp("distil")
    config = transformers.DistilBertConfig(vocab_size=20, dim=8, n_layers=2, n_heads=2, hidden_dim=16, num_labels=3)
    transformers.DistilBertForSequenceClassification(config).save_pretrained(folder)
    return folder


def made(name: str, seed: int = 0, classes: int = 4) -> Any:
    torch.manual_seed(seed)
    return build(name, classes=classes, shape=SHAPE)


def weights(net: torch.nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in net.parameters()])


def stored(folder: Path) -> Any:
    return transformers.AutoModel.from_pretrained(folder).eval()


def test_a_bare_encoder_gets_a_head_from_the_run_s_draw(bare: Path) -> None:
    net, again, other = (made(f"hf:{bare}", seed) for seed in (0, 0, 1))
    assert torch.equal(weights(net), weights(again))
    assert not torch.equal(net.classifier.weight, other.classifier.weight)
    assert torch.equal(weights(net.bert), weights(other.bert))
    assert torch.equal(weights(net.bert), weights(stored(bare)))
    assert net.training
    check(f"hf:{bare}", 4, SHAPE, texts())


def test_a_cut_encoder_has_the_first_layers(bare: Path) -> None:
    whole, cut = made(f"hf:{bare}"), made(f"hf:{bare}:layers=2")
    assert len(whole.bert.encoder.layer) == 3
    assert torch.equal(weights(cut.bert.encoder), weights(whole.bert.encoder.layer[:2]))
    assert torch.equal(weights(cut.bert.embeddings), weights(whole.bert.embeddings))
    with torch.no_grad():
        states = stored(bare)(**texts(), output_hidden_states=True).hidden_states
        found = cut.eval().bert(**texts()).last_hidden_state
    torch.testing.assert_close(found, states[2])
    check(f"hf:{bare}:layers=2", 4, SHAPE, texts())


@pytest.mark.parametrize("name", ["hf:{}:layers=2:pool=mean", "hf:{}:layers=2+head16"])
def test_a_pooled_encoder_is_a_classifier(bare: Path, name: str) -> None:
    name = name.format(bare)
    net, x = made(name), texts()
    assert isinstance(net, Classifier)
    assert torch.equal(weights(net), weights(made(name)))
    check(name, 4, SHAPE, x)
    (encoder,) = (m for m in net.modules() if isinstance(m, Encoder))
    assert encoder.pooling == "mean"  # the folder says so
    with torch.no_grad():
        states = stored(bare)(**x, output_hidden_states=True).hidden_states[2]
        expected = torch.stack([states[0].mean(0), states[1, :2].mean(0)])
        torch.testing.assert_close(encoder.eval()(**x), expected)
    assert not any("pooler" in key for key in net.state_dict())  # nothing is sent that is not used


def pooling_of(name: str) -> str:
    (encoder,) = (m for m in made(name).modules() if isinstance(m, Encoder))
    return encoder.pooling


def test_the_pooling_is_the_folder_s_or_the_model_s_or_the_mean(bare: Path, distil: Path, tmp_path: Path) -> None:
    assert pooling_of(f"hf:{bare}+head16") == "mean"
    assert pooling_of(f"hf:{bare}:pool=pooler+head16") == "pooler"
    assert pooling_of(f"hf:{distil}+head16") == "mean"  # DistilBERT has no pooler
    assert pooling_of(f"hf:{distil}:pool=first") == "first"
    transformers.BertConfig(num_hidden_layers=1, **SIZES).save_pretrained(tmp_path)
    assert pooling_of(f"hf:{tmp_path}+head16") == "pooler"
    without = transformers.BertModel(transformers.BertConfig(num_hidden_layers=1, **SIZES), add_pooling_layer=False)
    without.save_pretrained(tmp_path)
    assert pooling_of(f"hf:{tmp_path}+head16") == "mean"  # not a pooler drawn at random
    with pytest.raises(FedfuseError, match="has no pooler: choose :pool=first or :pool=mean"):
        made(f"hf:{tmp_path}:pool=pooler")
    with pytest.raises(FedfuseError, match="has no pooler"):
        made(f"hf:{distil}:pool=pooler")


def test_distilbert_is_cut_too_and_takes_segments_that_it_does_not_have(distil: Path) -> None:
    cut = made(f"hf:{distil}:layers=1", classes=3)
    assert len(cut.distilbert.transformer.layer) == 1
    whole = transformers.DistilBertForSequenceClassification.from_pretrained(distil)
    assert torch.equal(cut.classifier.weight, whole.classifier.weight)  # its own classifier fits 3 classes
    net = made(f"hf:{distil}+head16").eval()
    x = texts()
    with torch.no_grad():
        found = forward(net, {**x, "token_type_ids": torch.ones_like(x["input_ids"])})
        assert torch.equal(found, forward(net, x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (":layers=4", "the encoder has 3 layers: give at most 3"),
        (":layers=0", "has the option 'layers=0'"),
        (":layers=x", "has the option 'layers=x'"),
        (":layers=1:layers=1", "each once"),
        (":pool=max", ":pool= with pooler, first, mean"),
        (":depth=2", "has the option 'depth=2': give :layers=N"),
    ],
)
def test_a_wrong_option_names_the_remedy(bare: Path, options: str, message: str) -> None:
    with pytest.raises(FedfuseError, match=message):
        check(f"hf:{bare}{options}", 4, SHAPE, texts())


def test_texts_that_do_not_fit_are_refused(bare: Path) -> None:
    with pytest.raises(FedfuseError, match="knows 20 token ids, but the texts have 21: encode them with its own"):
        check(f"hf:{bare}", 4, (8, 21), texts())
    with pytest.raises(FedfuseError, match="reads at most 512 tokens, but the texts have up to 600"):
        check(f"hf:{bare}:pool=mean", 4, (600, 20), texts())


def test_models_that_cannot_be_cut_or_pooled_are_refused(tmp_path: Path) -> None:
    transformers.T5Config(
        vocab_size=20, d_model=8, d_kv=4, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    ).save_pretrained(tmp_path / "t5")
    transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1]).save_pretrained(tmp_path / "resnet")
    for folder in ("t5", "resnet"):
        with pytest.raises(FedfuseError, match=r"only encoders of texts .* can be cut, but this is a"):
            made(f"hf:{tmp_path / folder}:layers=1")
    with pytest.raises(FedfuseError, match="a t5 is no encoder alone"):
        made(f"hf:{tmp_path / 't5'}+head16")
    with pytest.raises(FedfuseError, match="has no pooling of words"):
        made(f"hf:{tmp_path / 'resnet'}:pool=mean")


def test_weights_that_lack_layers_are_refused(bare: Path, tmp_path: Path) -> None:
    stored(bare).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    with pytest.raises(FedfuseError, match=r"its weights lack encoder\.layer\.3\..* of the encoder"):
        made(f"hf:{tmp_path}+head16")


def test_pickled_weights_are_not_opened(bare: Path, tmp_path: Path) -> None:
    stored(bare).config.save_pretrained(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"a pickle")
    with pytest.raises(FedfuseError, match=r"pytorch_model\.bin, a pickle: save them as safetensors"):
        made(f"hf:{tmp_path}")


def test_names_are_read_and_written() -> None:
    for name, expected in {
        "hf:a/b": HfName("a/b"),
        "hf:/x/y:layers=2": HfName("/x/y", layers=2),
        "hf:a/b:layers=12:pool=first": HfName("a/b", 12, "first"),
        "hf:./odd:name/z": HfName("./odd:name/z"),
    }.items():
        assert parse(name) == expected
        assert str(expected) == name
    assert str(parse("hf:/somewhere/private/model:layers=2").without_path()) == "hf:model:layers=2"
    assert holds("hf:a/b:layers=2")
    assert not any(holds(name) for name in ("hf:a/b+head128", "hf:a/b:pool=mean", "hf:a/b|mlp:8", "mlp:8"))


@pytest.mark.parametrize("name", ["hf:{}:layers=2", "hf:{}:layers=2:pool=mean", "hf:{}:layers=2+head16"])
def test_a_model_file_gives_the_net_back(bare: Path, name: str, tmp_path: Path) -> None:
    arch = name.format(bare)
    net = made(arch).eval()
    labels = ("a", "b", "c", "d")
    header = Header(arch=arch, classes=4, shape=SHAPE, mean=(0.0,), std=(1.0,), labels=labels)
    loaded = load_model(save_model(tmp_path, Snapshot.of(arch, net), header))
    with torch.no_grad():
        assert torch.equal(forward(loaded.net, texts()), forward(net, texts()))


@pytest.mark.parametrize("name", ["hf:{}:layers=2:pool=mean", "hf:{}:layers=2+head16", "hf:{}:pool=pooler+head16"])
def test_an_exported_folder_holds_its_encoder_s_configuration(bare: Path, name: str, tmp_path: Path) -> None:
    arch = name.format(bare)
    net = made(arch).eval()
    tensors = {key: tensor.detach() for key, tensor in net.state_dict().items()}
    portable = write_encoder(tmp_path, arch, tensors)
    assert portable.startswith(f"hf:{bare.name}:")
    labels = ("a", "b", "c", "d")
    header = Header(arch=portable, classes=4, shape=SHAPE, mean=(0.0,), std=(1.0,), labels=labels)
    write_model(tmp_path / MODEL, header, tensors)
    assert str(bare.parent) not in (tmp_path / ENCODER).read_text()
    loaded = load_model(tmp_path)
    assert loaded.arch == portable
    with torch.no_grad():
        assert torch.equal(forward(loaded.net, texts()), forward(net, texts()))


def test_nets_without_an_encoder_keep_their_name(tmp_path: Path) -> None:
    assert write_encoder(tmp_path, "bag+head16", {}) == "bag+head16"
    assert not list(tmp_path.iterdir())

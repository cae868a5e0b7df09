"""`fedfuse fuse`: models by name into a folder. A mistake is one sentence, exit code 2, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import torch
import transformers
from pyarrow import csv, parquet
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

import fedfuse
from fedfuse.compute.batches import forward, rows_of
from fedfuse.data.sources import load
from fedfuse.data.sources.location import Location
from fedfuse.evaluate import accuracy
from fedfuse.in_hand.by_name import load_teacher
from fedfuse.in_hand.raw import read_labeled, read_pool
from fedfuse.in_hand.readings import NumberReading
from fedfuse.models import build
from fedfuse.models.file import Header, write_model
from fedfuse.types import Snapshot
from tests.command_line import CommandLine, CommandResult

QUICK = ("--steps", "150", "--lr", "0.01", "--batch-size", "64")
DIGITS = tuple("0123456789")
GOOD, BAD, OTHER = ["good", "great", "fine"], ["bad", "awful", "poor"], ["the", "film", "was", "very"]
Fuse = Callable[..., CommandResult]


@pytest.fixture
def fuse(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fuse:
    """The command with few steps, in a folder and with a cache of the test's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDFUSE_CACHE", str(tmp_path / "cache"))

    def run(*arguments: str | Path, out: str = "out") -> CommandResult:
        return cli.here("fuse", "--out", out, *QUICK, *arguments)

    return run


def trained(net: Any, x: Any, y: Tensor) -> Any:
    adam = torch.optim.Adam(net.parameters(), lr=0.01)
    for batch in torch.randint(len(y), (150, 64), generator=torch.Generator().manual_seed(0)):
        adam.zero_grad()
        nn.functional.cross_entropy(forward(net, rows_of(x, batch)), y[batch]).backward()
        adam.step()
    return net.eval()


def save(file: Path, arch: str, net: nn.Module, labels: tuple[str, ...] = DIGITS) -> Path:
    data = load("digits").train
    statistics = {"mean": tuple(data.mean.tolist()), "std": tuple(data.std.tolist())}
    header = Header(arch=arch, classes=len(labels), shape=(1, 8, 8), labels=labels, **statistics)
    snapshot = Snapshot.of(arch, net)
    write_model(file, header, {**snapshot.params, **snapshot.buffers})
    return file


def vit(classes: int = 10, channels: int = 1) -> Any:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=8, patch_size=4,
        num_channels=channels, num_labels=classes,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two model files of one architecture, and a Hugging Face classifier with a normalisation of its own."""
    folder, data = tmp_path_factory.mktemp("digits"), load("digits").train
    with torch.random.fork_rng():
        for seed in (0, 1):
            torch.manual_seed(seed)
            net = trained(build("mlp:32", classes=10, shape=(1, 8, 8)), data.normalise(data.x), data.y)
            save(folder / f"mlp{seed}.safetensors", "mlp:32", net)
        trained(vit(), (data.x / 255 - 0.5) / 0.25, data.y).save_pretrained(folder / "vit")
        vit(3).save_pretrained(folder / "three")
    processor = {"image_mean": [0.5], "image_std": [0.25], "size": {"height": 8, "width": 8}}
    (folder / "vit" / "preprocessor_config.json").write_text(json.dumps(processor))
    return folder


def tokenizer(words: list[str]) -> Any:
    """One token for each word."""
    known = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
    whole = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    whole.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=whole, pad_token="[PAD]", unk_token="[UNK]")


def bert(vocabulary: int = 12) -> Any:
    config = transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, num_labels=2,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def sentences(file: Path, rows: int, seed: int, column: str = "text") -> Path:
    rng = torch.Generator().manual_seed(seed)
    y = torch.randint(2, (rows,), generator=rng)
    picks = torch.randint(100, (rows, 4), generator=rng).tolist()
    texts = [
        " ".join([*(OTHER[p % 4] for p in pick[: 1 + pick[3] % 3]), (GOOD if good else BAD)[pick[3] % 3]])
        for good, pick in zip(y.tolist(), picks, strict=True)
    ]
    parquet.write_table(pyarrow.table({column: texts, "label": y.tolist()}), file)
    return file


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts, and two classifiers whose tokenizers number the words differently."""
    folder = tmp_path_factory.mktemp("reviews")
    sentences(folder / "pool.parquet", 300, 1)
    sentences(folder / "test.parquet", 100, 2, column="sentence")
    train = parquet.read_table(sentences(folder / "train.parquet", 300, 0))
    words = [*GOOD, *BAD, *OTHER]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for name, order in (("one", words), ("two", words[::-1])):
            own = tokenizer(order)
            tokens = own(train["text"].to_pylist(), padding=True, return_tensors="pt")
            net = trained(bert(), dict(tokens), torch.tensor(train["label"].to_pylist()))
            net.save_pretrained(folder / name)
            own.save_pretrained(folder / name)
        bert().config.save_pretrained(folder / "fresh")
        tokenizer(words).save_pretrained(folder / "fresh")
    return folder


def rows(result: CommandResult) -> dict[str, list[float]]:
    """The numbers of the table, by model."""
    table = {}
    for line in result.out.splitlines():
        words = line.split()
        values = [word for word in words if word.replace(".", "").isdigit() and "." in word]
        if values:
            table[line.partition("  ")[0].strip()] = [float(value) for value in values]
    return table


def test_files_and_a_hugging_face_folder_become_a_net_of_the_zoo(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    teachers = (digits / "mlp0.safetensors", digits / "mlp1.safetensors", digits / "vit")
    data = ("--pool", "digits", "--validation", "digits", "--test", "digits")
    result = fuse(*teachers, "--student", "mlp:24", *data)
    assert result.code == 0, result.text
    table = rows(result)
    assert list(table) == ["mlp0.safetensors", "mlp1.safetensors", "vit", "ensemble", "student"]
    assert min(numbers[0] for name, numbers in table.items() if name != "vit") > 75
    assert all(numbers[0] == numbers[1] for numbers in table.values())  # validation and test are the same data here
    test = load("digits").test
    net = transformers.AutoModelForImageClassification.from_pretrained(digits / "vit")
    own = accuracy(net(pixel_values=(test.x / 255 - 0.5) / 0.25).logits, test.y)
    assert 100 * own == pytest.approx(table["vit"][1], abs=0.5)
    loaded = fedfuse.load_model(tmp_path / "out")
    share = accuracy(loaded.net((test.x / 255 - loaded.mean[0]) / loaded.std[0]), test.y)
    assert 100 * share == pytest.approx(table["student"][1], abs=0.5)
    assert loaded.labels == DIGITS
    assert "not run again" not in result.out
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    assert {f.name for f in (tmp_path / "out").iterdir()} == {"model.safetensors", "report.html", "fusion.json"}


def test_teachers_are_run_once_for_several_students(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    one, two = digits / "mlp0.safetensors", digits / "mlp1.safetensors"
    first = fuse(one, "--student", "mlp:8", "--pool", "digits", "--no-report", out="a")
    assert first.code == 0, first.text
    assert not (tmp_path / "a" / "report.html").exists()
    second = fuse(one, two, "--student", "mlp:16", "--pool", "digits", "--target", "probs", out="b")
    assert second.code == 0, second.text
    assert "not run again, from the cache: mlp0.safetensors\n" in second.out
    assert "average of weights" in rows(second)  # of one architecture; here by agreement with the ensemble
    for file in (tmp_path / "cache" / "teachers").rglob("*.npy"):
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
    third = fuse(one, two, "--student", "mlp:16", "--pool", "digits", "--target", "probs", out="c")
    assert "not run again" not in third.out  # damage is noticed
    assert rows(third) == rows(second)
    models = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in "bc"]
    assert models[0] == models[1]


def test_a_hugging_face_student_is_written_for_transformers(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    result = fuse(digits / "mlp0.safetensors", "--student", f"hf:{digits / 'vit'}", "--pool", "digits")
    assert result.code == 0, result.text
    net = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "out")
    loaded = fedfuse.load_model(tmp_path / "out")
    test = load("digits").test
    x = (test.x / 255 - 0.5) / 0.25
    assert net.config.id2label == dict(enumerate(DIGITS))
    with torch.no_grad():
        assert torch.allclose(net(pixel_values=x).logits, loaded.net(x), atol=1e-5)
        assert accuracy(loaded.net(x), test.y) > 0.8
    again = fuse("out", "--student", "out", "--pool", "digits", out="again")  # as teacher and student
    assert again.code == 0, again.text


def test_texts_are_read_by_each_models_own_tokenizer(fuse: Fuse, reviews: Path, tmp_path: Path) -> None:
    data = ("--pool", reviews / "pool.parquet", "--test", f"{reviews / 'test.parquet'}::sentence")
    result = fuse(reviews / "one", f"hf:{reviews / 'two'}", "--student", f"hf:{reviews / 'fresh'}", *data)
    assert result.code == 0, result.text
    table = rows(result)
    assert list(table) == ["one", "two", "ensemble", "student"]  # no average: the tokens mean different words
    assert min(numbers[0] for numbers in table.values()) > 95
    net = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    own = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    logits = net(**own(["the film was great", "very awful"], padding=True, return_tensors="pt")).logits
    assert logits.argmax(1).tolist() == [1, 0]


def test_texts_may_be_csv_files_with_names_of_classes(fuse: Fuse, reviews: Path, tmp_path: Path) -> None:
    for name in ("pool", "test"):
        table = parquet.read_table(reviews / f"{name}.parquet")
        names = [("LABEL_0", "LABEL_1")[label] for label in table["label"].to_pylist()]
        csv.write_csv(table.set_column(1, "label", [names]), tmp_path / f"{name}.csv")
    student = ("--student", f"hf:{reviews / 'fresh'}")
    said = fuse(
        reviews / "one", *student, "--pool", tmp_path / "pool.csv", "--test", f"{tmp_path / 'test.csv'}::sentence"
    )
    assert said.code == 0, said.text
    assert rows(said)["one"][0] > 95
    (tmp_path / "broken.csv").write_text("text,label\ngood,1,2\n")
    said = fuse(reviews / "one", *student, "--pool", tmp_path / "broken.csv", out="other")
    assert "line 2: 3 cells, and the first line names 2 columns" in said.err


def test_a_source_of_texts_is_read_by_name(tmp_path: Path) -> None:
    for split, texts in (("train", ["a b", "c"]), ("test", ["d", "e f"])):
        file = tmp_path / f"ag_news/data/{split}-00000-of-00001.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pyarrow.table({"text": texts, "label": [0, 1]}), file)
    location = Location(data_dir=tmp_path, cache=tmp_path / "cache")
    pool, test = read_pool("ag-news", location), read_labeled("ag-news", location, "--test")
    assert (pool.x, pool.y) == (["a b", "c"], None)
    assert (test.x, test.y.tolist()) == (["d", "e f"], [0, 1])  # type: ignore[union-attr]


def test_a_teacher_that_names_its_classes_in_another_order(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    loaded = fedfuse.load_model(digits / "mlp0.safetensors")
    order = torch.arange(9, -1, -1)
    with torch.no_grad():
        last = [module for module in loaded.net.modules() if isinstance(module, nn.Linear)][-1]
        last.weight.copy_(last.weight[order])
        last.bias.copy_(last.bias[order])
    save(tmp_path / "reversed.safetensors", "mlp:32", loaded.net, DIGITS[::-1])
    teachers = (digits / "mlp1.safetensors", tmp_path / "reversed.safetensors")
    result = fuse(*teachers, "--student", "mlp:16", "--pool", "digits", "--test", "digits")
    table = rows(result)
    assert min(numbers[0] for numbers in table.values()) > 75
    assert "average of weights" not in table


def own_teacher() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def own_architecture(classes: int, shape: tuple[int, ...]) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(shape).numel(), classes))


def test_functions_as_teachers(fuse: Fuse) -> None:
    names = [f"{__name__}:own_teacher", f"{__name__}:own_architecture"]
    result = fuse(*names, "--student", "mlp:8", "--pool", "digits")
    assert result.code == 0, result.text
    assert list(rows(result))[:2] == names


def test_a_file_of_images_without_labels_is_a_pool(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    from datasets import Dataset, Features, Image

    images = load("digits").train.x[:128, 0].numpy()
    Dataset.from_dict({"image": list(images)}, features=Features({"image": Image()})).to_parquet(tmp_path / "x.parquet")
    result = fuse(digits / "mlp0.safetensors", "--student", "mlp:8", "--pool", "x.parquet", "--test", "digits")
    assert result.code == 0, result.text
    assert rows(result)["student"][0] > 60


def test_an_image_teacher_reads_as_its_processor_says(digits: Path) -> None:
    raw = read_pool("digits", Location.at())
    model = load_teacher(str(digits / "vit"), "vit", raw, None)
    assert model.reading == NumberReading((1, 8, 8), (0.5,), (0.25,))
    cut = NumberReading((3, 4, 4), (0.0,), (1.0,), shortest=8)
    image = torch.arange(96, dtype=torch.uint8).view(1, 1, 8, 12)
    read = cut(image)
    assert read.shape == (1, 3, 4, 4)
    assert torch.allclose(read[0, 2] * 255, image[0, 0, 2:6, 4:8].float())  # the centre, in every channel


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory, digits: Path, reviews: Path) -> Path:
    """Files with one mistake each."""
    folder = tmp_path_factory.mktemp("broken")
    net = build("mlp:32", classes=10, shape=(1, 8, 8))
    with torch.no_grad():
        next(net.parameters()).fill_(torch.nan)
    save(folder / "nan.safetensors", "mlp:32", net)
    parquet.write_table(pyarrow.table({"text": pyarrow.array([], pyarrow.string())}), folder / "empty.parquet")
    parquet.write_table(pyarrow.table({"label": [0, 1]}), folder / "labels.parquet")
    parquet.write_table(pyarrow.table({"text": ["good"] * 100}), folder / "unlabeled.parquet")
    shutil.copytree(reviews / "one", folder / "large")
    tokenizer([*(f"w{i}" for i in range(20)), *GOOD, *BAD, *OTHER]).save_pretrained(folder / "large")
    shutil.copytree(digits / "vit", folder / "no-weights", ignore=shutil.ignore_patterns("*.safetensors"))
    shutil.copytree(digits / "vit", folder / "no-config", ignore=shutil.ignore_patterns("config.json"))
    shutil.copytree(reviews / "one", folder / "no-tokenizer", ignore=shutil.ignore_patterns("tokenizer*"))
    (folder / "full").mkdir()
    (folder / "full" / "notes.txt").write_text("mine")
    return folder


MLP = "{digits}/mlp0.safetensors"
IMAGES = ("--student", "mlp:8", "--pool", "digits")
TEXTS = ("--student", "hf:{reviews}/fresh", "--pool", "{reviews}/pool.parquet")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((MLP, "{digits}/three", *IMAGES), "three gives logits for 3 classes, mlp0.safetensors for 10: choose"),
        (("{broken}/nan.safetensors", *IMAGES), "nan.safetensors gives outputs that are not finite: leave it out"),
        (("{reviews}/one", *TEXTS[:3], "{broken}/empty.parquet"), "empty.parquet is empty: give"),
        (
            ("{reviews}/one", *TEXTS[:3], "{broken}/labels.parquet"),
            "has only label, and no inputs: give",
        ),
        (("{broken}/large", *TEXTS), "the tokenizer of large gives the token"),
        (("{broken}/no-weights", *IMAGES), "no-weights has no weights, *.safetensors: save"),
        (("{broken}/no-config", *IMAGES), "no-config has no config.json: give"),
        (("{broken}/no-tokenizer", *TEXTS), "no-tokenizer has no tokenizer: save"),
        ((MLP, *IMAGES, "--device", "abacus"), "device 'abacus' cannot be used"),
        ((MLP, "--student", "resnt8", "--pool", "digits"), "Did you mean 'resnet8'?"),
        ((MLP, "--student", "nowhere/x.safetensors", "--pool", "digits"), "there is no nowhere/x.safetensors: give"),
        (("nowhere.safetensors", *IMAGES), "there is no nowhere.safetensors: give"),
        (("hf:./nowhere", *IMAGES), "there is no ./nowhere: give"),
        (("hf:no/such-model", *IMAGES), "such-model cannot be loaded"),
        (("tests.doubles:nobody", *IMAGES), "has no 'nobody'"),
        ((MLP, "--student", "mlp:8", "--pool", "nowhere.parquet"), "there is no nowhere.parquet: give"),
        ((MLP, "--student", "mlp:8", "--pool", "digit"), "did you mean digits?"),
        ((MLP, *TEXTS), "mlp0.safetensors does not read texts"),
        (("{reviews}/one", "--student", "mlp:8", *TEXTS[2:]), "mlp:8 does not read texts"),
        (("{reviews}/one", *TEXTS, "--validation", "{broken}/unlabeled.parquet"), "has no column of labels: add"),
        ((MLP, MLP, *IMAGES), "is named twice: name each teacher once"),
        ((MLP, *IMAGES, "--target", "logit"), "did you mean logits?"),
        ((MLP, *IMAGES, "--batch-size", "5000"), "less than one batch of 5000"),
        ((MLP, *IMAGES, "--lr", "0"), "lr"),
        ((MLP, *IMAGES, "--out", "{broken}/full"), "full is not empty: choose a new folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_written(
    fuse: Fuse, tmp_path: Path, digits: Path, reviews: Path, broken: Path, arguments: tuple[str, ...], message: str
) -> None:
    words = [word.format(digits=digits, reviews=reviews, broken=broken) for word in arguments]
    answer = fuse(*words)
    assert answer.code == 2, answer.text
    assert message in answer.err
    assert len(answer.err.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "cache" / "teachers").exists()  # no teacher was run


def test_an_earlier_fusion_is_not_written_over(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    arguments = (digits / "mlp0.safetensors", "--student", "mlp:8", "--pool", "digits")
    (tmp_path / "out").mkdir()  # an empty folder is as good as none
    assert fuse(*arguments).code == 0
    again = fuse(*arguments)
    assert again.code == 2
    assert "out holds an earlier fusion: choose another --out" in again.err


def test_after_a_crash_the_teachers_are_not_run_again(
    fuse: Fuse, digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = (digits / "mlp0.safetensors", "--student", "mlp:8", "--pool", "digits")
    with monkeypatch.context() as patch:
        patch.setattr("fedfuse.in_hand.folder._distil", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            fuse(*arguments)
    assert not (tmp_path / "out").exists()
    again = fuse(*arguments)
    assert again.code == 0, again.text
    assert "not run again, from the cache: mlp0.safetensors" in again.out


def test_a_teacher_without_memory_is_one_sentence(fuse: Fuse, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*arguments: object, **settings: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory.\nMore lines.")

    monkeypatch.setattr("fedfuse.in_hand.logit_cache.logits_of", no_memory)
    said = fuse(digits / "mlp0.safetensors", "--student", "mlp:8", "--pool", "digits")
    assert said.code == 2
    assert "the device ran out of memory (CUDA out of memory.): lower --batch-size, or choose --device cpu" in said.err


def test_a_pickled_student_is_refused(fuse: Fuse, digits: Path, tmp_path: Path) -> None:
    shutil.copytree(digits / "vit", tmp_path / "old", ignore=shutil.ignore_patterns("*.safetensors"))
    (tmp_path / "old" / "pytorch_model.bin").write_bytes(b"")
    result = fuse(digits / "mlp0.safetensors", "--student", "hf:old", "--pool", "digits")
    assert result.code == 2
    assert "has its weights in pytorch_model.bin, a pickle: save them as safetensors" in result.err

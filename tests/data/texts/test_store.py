import torch

from fedfuse.data.texts.store import Texts, gather

WORDS = ["a", "bée", "", "漢字", "e"]


def test_texts_come_back_as_they_were() -> None:
    texts = Texts.of([WORDS], "x")
    assert list(texts.strings(torch.tensor([3, 0, 2, 1]))) == ["漢字", "a", "", "bée"]
    assert len(texts) == 5
    assert not texts.pairs


def test_pairs_come_back_together() -> None:
    texts = Texts.of([WORDS, WORDS[::-1]], "x")
    assert texts.pairs
    assert next(texts.entries(torch.tensor([1, 4]))) == [("bée", "漢字"), ("e", "a")]
    assert list(texts.strings(torch.tensor([2]))) == ["", ""]


def test_a_selection_has_only_its_own_bytes() -> None:
    for columns in ([WORDS], [WORDS, WORDS[::-1]]):
        some = Texts.of(columns, "x").select(torch.tensor([4, 1]))
        assert some.digest == Texts.of([[c[4], c[1]] for c in columns], "x").digest
    assert len(Texts.of([WORDS], "x").select(torch.arange(0))) == 0


def test_the_digest_knows_where_texts_end() -> None:
    assert Texts.of([["ab", "c"]], "x").digest != Texts.of([["a", "bc"]], "x").digest


def test_runs_are_joined_by_hand() -> None:
    values = torch.tensor([10, 11, 12, 13, 14, 15])
    assert gather(values, torch.tensor([4, 0, 2]), torch.tensor([2, 0, 3])).tolist() == [14, 15, 12, 13, 14]

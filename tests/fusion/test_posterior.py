"""Posteriors: moments by hand, the stream against the list, and samples against the moments they must have."""

import pytest
import torch

from fedfuse.fusion import DeltaGaussian, DiagonalGaussian, DirichletMixture
from fedfuse.fusion.posterior import Gaussian, Posterior
from fedfuse.types import FedfuseError, Snapshot
from tests.fusion.cases import of_value

# Values 0 and 4 with 3 and 1 examples: mean 1, variance (3 * 1 + 1 * 9) / 4 = 3.
MODELS, WEIGHTS = [of_value(0.0, buffer=2.0), of_value(4.0, buffer=6.0)], [3.0, 1.0]
DRAWS = 1500


def draws(sampler, count: int = DRAWS) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.stack([sampler.sample(rng).params["w"] for _ in range(count)]).double()


def test_gaussian_has_the_weighted_mean_and_variance_about_it() -> None:
    fitted = DiagonalGaussian().fit(MODELS, WEIGHTS)
    assert isinstance(fitted, Gaussian)
    torch.testing.assert_close(fitted.mean.params["w"], torch.tensor([1.0]))
    torch.testing.assert_close(fitted.std["w"], torch.tensor([3.0]).sqrt())
    torch.testing.assert_close(fitted.mean.buffers["b"], torch.tensor([3.0]))  # (3 * 2 + 6) / 4


def test_variance_survives_a_large_mean() -> None:
    # 1e4 and 1e4 + 0.125 in float32: squares would cancel.
    fitted = DiagonalGaussian().fit([of_value(1e4), of_value(1e4 + 0.125)])
    assert isinstance(fitted, Gaussian)
    torch.testing.assert_close(fitted.std["w"], torch.tensor([0.0625]))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_gaussian_samples_have_its_moments(scale: float) -> None:
    values = draws(DiagonalGaussian(scale).fit(MODELS, WEIGHTS))
    # Standard errors: std / sqrt(n) of the mean, about std / sqrt(2 n) of the deviation; 4 of them are allowed.
    std = scale * 3**0.5
    assert abs(float(values.mean()) - 1.0) < 4 * std / DRAWS**0.5
    assert abs(float(values.std()) - std) < 4 * std / (2 * DRAWS) ** 0.5


def test_samples_take_buffers_from_the_mean() -> None:
    base = of_value(0.0)
    for sampler in (
        DiagonalGaussian().fit(MODELS, WEIGHTS),
        DirichletMixture().fit(MODELS, WEIGHTS),
        DeltaGaussian().fit(MODELS, base=base),
    ):
        rng = torch.Generator().manual_seed(1)
        first, second = sampler.sample(rng), sampler.sample(rng)
        assert not torch.equal(first.params["w"], second.params["w"])
        assert torch.equal(first.buffers["b"], second.buffers["b"])
    assert float(DiagonalGaussian().fit(MODELS, WEIGHTS).sample(rng).buffers["b"]) == 3.0
    assert float(DeltaGaussian().fit(MODELS, base=base).sample(rng).buffers["b"]) == 4.0  # unweighted


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_dirichlet_mixtures_have_the_moments_of_dirichlet_shares(alpha: float) -> None:
    # Equal weights: the mean is that of the models, the variance theirs / (K alpha + 1).
    values = draws(DirichletMixture(alpha).fit([of_value(v) for v in (0.0, 3.0, 6.0)]))
    variance = 6.0 / (3 * alpha + 1)
    assert abs(float(values.mean()) - 3.0) < 4 * (variance / DRAWS) ** 0.5
    assert abs(float(values.var()) / variance - 1) < 4 * (2 / DRAWS) ** 0.5
    assert values.min() >= 0
    assert values.max() <= 6


def test_dirichlet_shares_are_multiplied_by_examples() -> None:
    # Two clients with alpha 1: the share g of the second is uniform, and with weights 1 and 3 the sample is
    # 3 g / ((1 - g) + 3 g). Its mean is 3 * integral of g / (1 + 2 g) = 3 (1/2 - ln 3 / 4) = 0.6760.
    values = draws(DirichletMixture(1.0).fit([of_value(0.0), of_value(1.0)], [1.0, 3.0]))
    assert abs(float(values.mean()) - 0.67604) < 4 * 0.25 / DRAWS**0.5
    assert abs(float(values.mean()) - 0.75) > 0.03  # what shares from Dirichlet(alpha n_k) would give


def test_dirichlet_from_a_stream_has_the_same_moments() -> None:
    running = DirichletMixture(1.0).start(DRAWS, of_value(0.0))
    for client, value in enumerate((0.0, 3.0, 6.0)):
        running.add(of_value(value), 1.0, torch.Generator().manual_seed(client))
    unused, sampler = torch.Generator(), running.value()
    values = torch.stack([sampler.sample(unused, number).params["w"] for number in range(DRAWS)]).double()
    assert abs(float(values.mean()) - 3.0) < 4 * (1.5 / DRAWS) ** 0.5
    assert abs(float(values.var()) / 1.5 - 1) < 4 * (2 / DRAWS) ** 0.5


def test_dirichlet_from_a_stream_multiplies_by_examples() -> None:
    # As above: 0.6760 with weights 1 and 3, where plain shares would give 0.5.
    running = DirichletMixture(1.0).start(DRAWS, of_value(0.0))
    for client, (value, weight) in enumerate(((0.0, 1.0), (1.0, 3.0))):
        running.add(of_value(value), weight, torch.Generator().manual_seed(client))
    unused, sampler = torch.Generator(), running.value()
    values = torch.stack([sampler.sample(unused, number).params["w"] for number in range(DRAWS)]).double()
    assert abs(float(values.mean()) - 0.67604) < 4 * 0.25 / DRAWS**0.5


def test_delta_gaussian_is_over_unit_directions() -> None:
    # Steps (3, 4) and (0, 5), both of norm 5: directions (.6, .8), (0, 1), mean (.3, .9), std (.3, .1).
    base = Snapshot("one", {"w": torch.tensor([1.0, 1.0])})
    clients = [Snapshot("one", {"w": torch.tensor(v)}) for v in ([4.0, 5.0], [1.0, 6.0])]
    fitted = DeltaGaussian(scale=0.1, floor=1e-5).fit(clients, [1.0, 100.0], base=base)
    assert isinstance(fitted, Gaussian)
    torch.testing.assert_close(fitted.mean.params["w"], torch.tensor([2.5, 5.5]))
    torch.testing.assert_close(fitted.std["w"], torch.tensor([0.15, 0.05]))


def test_delta_gaussian_has_a_floor_and_no_division_by_zero() -> None:
    base = Snapshot("one", {"w": torch.tensor([1.0, 1.0]), "still": torch.tensor([7.0])})
    clients = [Snapshot("one", {"w": torch.tensor([4.0, 5.0]), "still": torch.tensor([7.0])})] * 2
    fitted = DeltaGaussian(scale=0.1, floor=1e-4).fit(clients, base=base)
    assert isinstance(fitted, Gaussian)
    torch.testing.assert_close(fitted.std["w"], torch.tensor([0.1 * 0.01 * 5] * 2))
    assert fitted.mean.params["still"].tolist() == [7.0]
    assert fitted.std["still"].tolist() == [0.0]


@pytest.mark.parametrize("posterior", [DiagonalGaussian(), DirichletMixture(), DeltaGaussian()], ids=str)
def test_the_order_of_clients_does_not_matter(posterior: Posterior) -> None:
    values = {1: 0.5, 2: 2.0, 3: -1.0}

    def sample(order: list[int]) -> torch.Tensor:
        running = posterior.start(2, of_value(0.25))
        for client in order:
            running.add(of_value(values[client]), float(client), torch.Generator().manual_seed(client))
        return running.value().sample(torch.Generator().manual_seed(9), 1).params["w"]

    torch.testing.assert_close(sample([1, 2, 3]), sample([3, 1, 2]))


@pytest.mark.parametrize("posterior", [DiagonalGaussian(), DirichletMixture()], ids=str)
def test_identical_clients_are_sampled_as_they_are(posterior: DiagonalGaussian | DirichletMixture) -> None:
    fitted = posterior.fit([of_value(0.1)] * 3, [5.0, 1.0, 2.0])
    assert torch.equal(fitted.sample(torch.Generator().manual_seed(0)).params["w"], torch.tensor([0.1]))


def test_a_lazy_stream_of_models_is_read_one_at_a_time() -> None:
    alive: list[int] = []

    def stream():
        for value in range(5):
            alive.append(value)
            yield of_value(float(value))

    fitted = DiagonalGaussian().fit(stream())
    assert isinstance(fitted, Gaussian)
    torch.testing.assert_close(fitted.std["w"], torch.tensor([2.0]).sqrt())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DirichletMixture(0.0), "alpha"),
        (lambda: DiagonalGaussian(-1.0), "scale"),
        (lambda: DeltaGaussian().fit(MODELS), "base="),
        (lambda: DiagonalGaussian().fit([]), "no model"),
        (lambda: DiagonalGaussian().fit([of_value(1.0), of_value(1.0, "two")]), "a one and a two"),
    ],
)
def test_errors(make, words) -> None:
    with pytest.raises(FedfuseError, match=words):
        make()

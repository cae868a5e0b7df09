"""MOON. Li, He, Song: Model-Contrastive Federated Learning. CVPR 2021. arXiv:2103.16257.

FedAvg whose clients (Algorithm 1) minimise cross entropy + mu l_con. With z, z_glob and z_prev the features of an
example by the net in training, by the received model and by the client's model of its previous round,
    l_con = -log( exp(sim(z, z_glob) / tau) / (exp(sim(z, z_glob) / tau) + exp(sim(z, z_prev) / tau)) ),
with the cosine as similarity: features move towards those of the global model and away from the client's last ones.

A client keeps its last model and does not send it. In its first round the received model takes its place, and l_con has
no gradient. mu = 0 is FedAvg. The paper tunes mu for each data set; the default is that of the released code
(`docs/algorithms/moon.md`).
"""

from fedfuse.algorithm import Algorithm, paper
from fedfuse.algorithms.moon.client import ModelContrast, PastModel
from fedfuse.algorithms.settings import OfAggregate, with_settings
from fedfuse.context import Context
from fedfuse.fusion.admission import Admission, AdmitAll, admission_with
from fedfuse.fusion.aggregate import Aggregate, Averaged, BufferPolicy, WeightedMean, Weights
from fedfuse.local import Training
from fedfuse.models.classifier import trunk_and_head
from fedfuse.types import FedfuseError


@paper
def moon(
    *,
    mu: float = 1.0,
    temperature: float = 0.5,
    aggregate: Aggregate = WeightedMean(),
    weights: OfAggregate[Weights] = None,
    buffers: OfAggregate[BufferPolicy] = None,
    admission: Admission = AdmitAll(),
    drop_worst: bool = False,
) -> Algorithm:
    """FedAvg with a contrastive term: clients' features move to the global model's, away from their own last ones."""
    return Algorithm(
        "moon",
        local=Training((ModelContrast(mu, temperature),), reports=(PastModel(),)),
        fuse=Averaged(
            with_settings(aggregate, weights=weights, buffers=buffers), admission_with(admission, drop_worst)
        ),
        check=nets_have_features,
    )


def nets_have_features(ctx: Context) -> None:
    """Refuse a net that does not define its features."""
    for arch in dict.fromkeys(ctx.archs):
        try:
            trunk_and_head(ctx.nets.scratch(arch))
        except FedfuseError as error:
            raise FedfuseError(f"moon cannot train {arch}: {error}") from error

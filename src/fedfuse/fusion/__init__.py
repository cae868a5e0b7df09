"""How the server turns many updates into one model per architecture."""

from fedfuse.fusion.admission import Admission, AdmitAll, DropWorst
from fedfuse.fusion.aggregate import Aggregate, Aggregated, Averaged, Momentum, RunningAggregate, WeightedMean
from fedfuse.fusion.consensus import Consensus, ConsensusWithDiversity, VarianceWeighted
from fedfuse.fusion.distillation import Distilled, admission_of, aggregate_of
from fedfuse.fusion.distillers import SGD, SWA, AdamCosine, Distillation, Distiller
from fedfuse.fusion.ensemble import Anchors, Clients, Ensemble, RunningEnsemble, Samples, Teacher, Union
from fedfuse.fusion.ground_truth import GroundTruth
from fedfuse.fusion.labelling import Labelling, SoftLabels
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.fusion.median import CoordinateMedian, MedianLogits
from fedfuse.fusion.posterior import DeltaGaussian, DiagonalGaussian, DirichletMixture, Posterior, RunningPosterior
from fedfuse.fusion.students import LargeServer, PerArchitecture, RunningStudents, Students
from fedfuse.fusion.table import Table, TableTarget, logits_of, reachable
from fedfuse.fusion.target import (
    Diversity,
    MeanLogits,
    MeanLosses,
    MeanProbs,
    RunningTarget,
    Target,
    TargetValue,
)

__all__ = [
    "SGD",
    "SWA",
    "AdamCosine",
    "Admission",
    "AdmitAll",
    "Aggregate",
    "Aggregated",
    "Anchors",
    "Averaged",
    "Clients",
    "Consensus",
    "ConsensusWithDiversity",
    "CoordinateMedian",
    "DeltaGaussian",
    "DiagonalGaussian",
    "DirichletMixture",
    "Distillation",
    "Distilled",
    "Distiller",
    "Diversity",
    "DropWorst",
    "Ensemble",
    "GroundTruth",
    "Labelling",
    "LargeServer",
    "Loss",
    "MeanLogits",
    "MeanLosses",
    "MeanProbs",
    "MedianLogits",
    "Momentum",
    "PerArchitecture",
    "Posterior",
    "RunningAggregate",
    "RunningEnsemble",
    "RunningPosterior",
    "RunningStudents",
    "RunningTarget",
    "Samples",
    "SoftCrossEntropy",
    "SoftLabels",
    "Students",
    "Table",
    "TableTarget",
    "Target",
    "TargetValue",
    "Teacher",
    "Union",
    "VarianceWeighted",
    "WeightedMean",
    "admission_of",
    "aggregate_of",
    "logits_of",
    "reachable",
]

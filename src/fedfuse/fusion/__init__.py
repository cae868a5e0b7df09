"""How a server turns many answers into one model per architecture."""

from fedfuse.fusion.aggregate import Aggregate, Averaged, Momentum, WeightedMean
from fedfuse.fusion.consensus import Consensus, ConsensusWithDiversity, VarianceWeighted
from fedfuse.fusion.distillation import Distilled, aggregate_of
from fedfuse.fusion.distillers import SGD, SWA, AdamCosine, Distillation, Distiller
from fedfuse.fusion.ensemble import Anchors, Clients, Ensemble, Samples, Teacher, Union
from fedfuse.fusion.fuse import Fused, fuse
from fedfuse.fusion.labelling import Lecture, SoftLabels
from fedfuse.fusion.loss import Loss, SoftCrossEntropy
from fedfuse.fusion.posterior import DeltaGaussian, DiagonalGaussian, DirichletMixture, Posterior
from fedfuse.fusion.students import DropWorst, LargeServer, PerArchitecture, Students
from fedfuse.fusion.table import Table, Tabled, outputs, reachable
from fedfuse.fusion.target import Accumulator, MeanLogits, MeanLosses, MeanProbs, Target

__all__ = [
    "SGD",
    "SWA",
    "Accumulator",
    "AdamCosine",
    "Aggregate",
    "Anchors",
    "Averaged",
    "Clients",
    "Consensus",
    "ConsensusWithDiversity",
    "DeltaGaussian",
    "DiagonalGaussian",
    "DirichletMixture",
    "Distillation",
    "Distilled",
    "Distiller",
    "DropWorst",
    "Ensemble",
    "Fused",
    "LargeServer",
    "Lecture",
    "Loss",
    "MeanLogits",
    "MeanLosses",
    "MeanProbs",
    "Momentum",
    "PerArchitecture",
    "Posterior",
    "Samples",
    "SoftCrossEntropy",
    "SoftLabels",
    "Students",
    "Table",
    "Tabled",
    "Target",
    "Teacher",
    "Union",
    "VarianceWeighted",
    "WeightedMean",
    "aggregate_of",
    "fuse",
    "outputs",
    "reachable",
]

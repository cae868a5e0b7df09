"""How a server turns many answers into one model per architecture."""

from fedfuse.fusion.aggregate import Aggregate, Averaged, Momentum, WeightedMean
from fedfuse.fusion.distill import SGD, SWA, AdamCosine, Distillation, Distiller
from fedfuse.fusion.distilled import Distilled, aggregate_of
from fedfuse.fusion.ensemble import Anchors, Clients, Ensemble, Samples, Teacher, Union
from fedfuse.fusion.fuse import Fused, fuse
from fedfuse.fusion.lecture import Lecture, SoftLabels
from fedfuse.fusion.posterior import DeltaGaussian, DiagonalGaussian, DirichletMixture, Posterior
from fedfuse.fusion.students import DropWorst, PerArchitecture, Students
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
    "DeltaGaussian",
    "DiagonalGaussian",
    "DirichletMixture",
    "Distillation",
    "Distilled",
    "Distiller",
    "DropWorst",
    "Ensemble",
    "Fused",
    "Lecture",
    "MeanLogits",
    "MeanLosses",
    "MeanProbs",
    "Momentum",
    "PerArchitecture",
    "Posterior",
    "Samples",
    "SoftLabels",
    "Students",
    "Table",
    "Tabled",
    "Target",
    "Teacher",
    "Union",
    "WeightedMean",
    "aggregate_of",
    "fuse",
    "outputs",
    "reachable",
]

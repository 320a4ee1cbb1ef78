"""Arithmetic behind image networks: handwritten digits, the papers' tasks on them, networks, and a trainer that resumes."""

from nalm.images.digits import Digits, download, load
from nalm.images.networks import Cell, ColourPairs, DigitClassifier, IsolatedPairs, SequenceNetwork, ThinPlateSpline, last_layer
from nalm.images.tasks import Pairs, Sequences, sequences, split_pairs
from nalm.images.trainer import Schedule, Trained, fit

__all__ = [
    "Cell",
    "ColourPairs",
    "DigitClassifier",
    "Digits",
    "IsolatedPairs",
    "Pairs",
    "Schedule",
    "SequenceNetwork",
    "Sequences",
    "ThinPlateSpline",
    "Trained",
    "download",
    "fit",
    "last_layer",
    "load",
    "sequences",
    "split_pairs",
]

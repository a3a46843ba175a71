"""Evaluation of attributions: which method's scores can be trusted, and how far.

Each test is a function of scores that gives a number with its 95 % interval; `evaluate_attribution` puts several
methods to several tests.
"""

from tangentkit.surrogate.evaluation.brittleness import Brittleness as Brittleness
from tangentkit.surrogate.evaluation.brittleness import brittleness as brittleness
from tangentkit.surrogate.evaluation.comparison import AttributionEvaluation as AttributionEvaluation
from tangentkit.surrogate.evaluation.comparison import evaluate_attribution as evaluate_attribution
from tangentkit.surrogate.evaluation.datamodeling import DatamodelingScore as DatamodelingScore
from tangentkit.surrogate.evaluation.datamodeling import (
    linear_datamodeling_score as linear_datamodeling_score,
)
from tangentkit.surrogate.evaluation.datamodeling import noise_ceiling as noise_ceiling
from tangentkit.surrogate.evaluation.detection import GroupDetection as GroupDetection
from tangentkit.surrogate.evaluation.detection import MislabelDetection as MislabelDetection
from tangentkit.surrogate.evaluation.detection import group_detection as group_detection
from tangentkit.surrogate.evaluation.detection import mislabel_auroc as mislabel_auroc
from tangentkit.surrogate.evaluation.identity import Identity as Identity
from tangentkit.surrogate.evaluation.identity import same_class as same_class
from tangentkit.surrogate.evaluation.identity import same_sample as same_sample
from tangentkit.surrogate.evaluation.methods import methods_of as methods_of
from tangentkit.surrogate.evaluation.outcome import Outcome as Outcome
from tangentkit.surrogate.evaluation.questions import ChangesPredictions as ChangesPredictions
from tangentkit.surrogate.evaluation.questions import DependsOnModel as DependsOnModel
from tangentkit.surrogate.evaluation.questions import FindsGroup as FindsGroup
from tangentkit.surrogate.evaluation.questions import FindsMislabels as FindsMislabels
from tangentkit.surrogate.evaluation.questions import FindsSameClass as FindsSameClass
from tangentkit.surrogate.evaluation.questions import FindsSameSample as FindsSameSample
from tangentkit.surrogate.evaluation.questions import PredictsAbsences as PredictsAbsences
from tangentkit.surrogate.evaluation.questions import PredictsSubsets as PredictsSubsets
from tangentkit.surrogate.evaluation.questions import Question as Question
from tangentkit.surrogate.evaluation.randomized import RandomizedModelCheck as RandomizedModelCheck
from tangentkit.surrogate.evaluation.randomized import randomized_model_check as randomized_model_check
from tangentkit.surrogate.evaluation.retraining import Retrained as Retrained
from tangentkit.surrogate.evaluation.retraining import Retraining as Retraining
from tangentkit.surrogate.evaluation.retraining import retrain_on as retrain_on
from tangentkit.surrogate.evaluation.subsets import random_absences as random_absences
from tangentkit.surrogate.evaluation.subsets import random_subsets as random_subsets

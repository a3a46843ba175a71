"""What a kernel says about a network: spectra, alignment, representations, shift, and the course of a training."""

from tangentkit.analysis.tracking import Course as Course
from tangentkit.analysis.tracking import Moment as Moment
from tangentkit.analysis.tracking import Tracker as Tracker
from tangentkit.analysis.tracking import TrackerWarning as TrackerWarning
from tangentkit.analysis.tracking import measure as measure
from tangentkit.analysis.tracking import track_checkpoints as track_checkpoints
from tangentkit.analysis.training_comparison import KolmogorovSmirnov as KolmogorovSmirnov
from tangentkit.analysis.training_comparison import TrainingComparison as TrainingComparison
from tangentkit.analysis.training_comparison import compare_training as compare_training
from tangentkit.analysis.training_ways import Task as Task

"""The tracker: what happens to kernels, spectra and weights while a network is trained.

moment      a network at one step, on a probe          measures    functions of a moment, by name
course      the numbers by step, shown                 folder      the same on disk, whole after any kill
tracker     steps of a training, measured              callbacks   in other people's trainers
wording     what a page says of measures               checkpoints a tracker over files
"""

from tangentkit.analysis.tracking.checkpoints import track_checkpoints as track_checkpoints
from tangentkit.analysis.tracking.course import Course as Course
from tangentkit.analysis.tracking.course import Record as Record
from tangentkit.analysis.tracking.measures import MEASURES as MEASURES
from tangentkit.analysis.tracking.measures import measure as measure
from tangentkit.analysis.tracking.moment import Moment as Moment
from tangentkit.analysis.tracking.moment import Probe as Probe
from tangentkit.analysis.tracking.tracker import Tracker as Tracker
from tangentkit.analysis.tracking.tracker import TrackerWarning as TrackerWarning

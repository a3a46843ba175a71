"""Pages, tables and figures: how numbers are shown. This package knows no study.

A `Table`, a `Figure` or a `Claim` holds numbers and nothing else; drawing and printing are separate, so the
same numbers become a page, a terminal table, a CSV file or an image.
"""

from tangentkit.report.claim import Claim as Claim
from tangentkit.report.claim import Interval as Interval
from tangentkit.report.drawing import DARK as DARK
from tangentkit.report.drawing import LIGHT as LIGHT
from tangentkit.report.drawing import Palette as Palette
from tangentkit.report.drawing import drawn as drawn
from tangentkit.report.drawing import image as image
from tangentkit.report.drawing import save as save
from tangentkit.report.figure import Bars as Bars
from tangentkit.report.figure import Boxes as Boxes
from tangentkit.report.figure import Dots as Dots
from tangentkit.report.figure import Figure as Figure
from tangentkit.report.figure import Heatmap as Heatmap
from tangentkit.report.figure import Histogram as Histogram
from tangentkit.report.figure import Images as Images
from tangentkit.report.figure import Lines as Lines
from tangentkit.report.figure import Ramp as Ramp
from tangentkit.report.figure import Scatter as Scatter
from tangentkit.report.figure import Series as Series
from tangentkit.report.measured import Measured as Measured
from tangentkit.report.page import Page as Page
from tangentkit.report.page import StandIn as StandIn
from tangentkit.report.table import Column as Column
from tangentkit.report.table import Table as Table

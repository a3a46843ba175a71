"""The page of a surrogate: which training samples speak for and against each prediction."""

from tangentkit.surrogate.page.explanation import Explanation as Explanation
from tangentkit.surrogate.page.explanation import KernelView as KernelView
from tangentkit.surrogate.page.explanation import Samples as Samples
from tangentkit.surrogate.page.folder import open_folder as open_folder
from tangentkit.surrogate.page.folder import write_folder as write_folder
from tangentkit.surrogate.page.html import write_page as write_page
from tangentkit.surrogate.page.server import PageServer as PageServer

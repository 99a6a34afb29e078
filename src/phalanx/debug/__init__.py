"""Looking at programs and arrays."""

from phalanx.debug.visualize import visualize_array_sharding as visualize_array_sharding
from phalanx.debug.visualize import visualize_sharding as visualize_sharding

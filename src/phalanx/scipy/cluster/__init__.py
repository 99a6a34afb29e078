"""Clusters, with the names of `scipy.cluster`."""

from phalanx.scipy.cluster import vq as vq

"""The memories of devices, by names that hold for every kind of them."""

from phalanx.transforms.offload import Space as Space

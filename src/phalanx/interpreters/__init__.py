"""Names under which programs of 2020 to 2022 import what placement over many devices is made of."""

from phalanx.interpreters import pxla as pxla

"""Linear systems given by what multiplies, with the names of `scipy.sparse`."""

from phalanx.scipy.sparse import linalg as linalg

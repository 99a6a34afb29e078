"""Element types under their module name: what they are called, how they promote, what they hold."""

from phalanx.core.dtypes import bfloat16 as bfloat16
from phalanx.core.dtypes import canonicalize_dtype as canonicalize_dtype
from phalanx.core.dtypes import extended as extended
from phalanx.core.dtypes import finfo as finfo
from phalanx.core.dtypes import float0 as float0
from phalanx.core.dtypes import iinfo as iinfo
from phalanx.core.dtypes import issubdtype as issubdtype
from phalanx.core.dtypes import itemsize_bits as itemsize_bits
from phalanx.core.dtypes import prng_key as prng_key
from phalanx.core.dtypes import scalar_type_of as scalar_type_of
from phalanx.core.errors import TypePromotionError as TypePromotionError
from phalanx.core.promotion import promote_types as promote_types
from phalanx.core.promotion import result_type as result_type
from phalanx.engine.frames import guard as _guard

_guard(globals())

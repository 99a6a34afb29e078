"""Array programming with the API of NumPy.

Every function works eagerly on concrete arrays and inside all transformations. Names are imported on first use; the
first one loads `array_methods`, which gives arrays and tracers their operators and methods. The block for type checkers
repeats the table of the names that most programs use, and a test compares the two.

The files form layers: a file imports only files named before it, or of its own line.

1. `operands`: conversion of arguments to arrays, promotion of their dtypes, broadcasting rules, axis checks.
2. `ufuncs/ufunc_implementations`, `ufunc_dispatch`, `ufunc_table`: elementwise functions, one table row each.
3. `reductions/array_reductions`.
4. `indexing/index_expression`, `read_plans`, `update_plans`, `array_indexing`: `x[...]` and `x.at[...]`, planned once
   per type of array and index expression.
5. `creation/array_creation`, `array_files`; `scalar_types`; `shapes/array_properties`.
6. `shapes/reshaping`, `rearranging`, `joining`.
7. `ufuncs/rounding`, `array_equality`; `indexing/where`, `take`; `creation/ranges`; `sorting/`; `shapes/insertion`,
   `diagonals`; `ufuncs/ufunc_methods`, `vectorize`.
8. `products/`: `einsum`, then `matrix_products` and `convolve`.
9. `reductions/moments`, then `histograms`, `quantiles`, `nan_reductions`; `shapes/padding`; `indexing/index_grids`.
10. `linalg/`, `fft/`, `calculus`, `polynomial_functions`, `bitpacking`, `array_printing`, `creation/window_functions`,
    `ravel_pytree`; `array_methods` installs the operators; `function_stages` gives public functions `lower`.
"""

from __future__ import annotations

from phalanx.engine.public_namespace import publish as _publish
from phalanx.numpy.function_stages import attach_stages as _attach_stages

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.numpy.creation.array_creation import (
        array as array,
        asarray as asarray,
        astype as astype,
        copy as copy,
        empty as empty,
        empty_like as empty_like,
        eye as eye,
        from_dlpack as from_dlpack,
        full as full,
        full_like as full_like,
        identity as identity,
        ones as ones,
        ones_like as ones_like,
        tri as tri,
        zeros as zeros,
        zeros_like as zeros_like,
    )
    from phalanx.numpy.creation.ranges import (
        arange as arange,
        geomspace as geomspace,
        linspace as linspace,
        logspace as logspace,
    )
    from phalanx.numpy.indexing.index_grids import (
        c_ as c_,
        diag_indices as diag_indices,
        diag_indices_from as diag_indices_from,
        fromfunction as fromfunction,
        index_exp as index_exp,
        indices as indices,
        ix_ as ix_,
        mask_indices as mask_indices,
        meshgrid as meshgrid,
        mgrid as mgrid,
        ogrid as ogrid,
        r_ as r_,
        ravel_multi_index as ravel_multi_index,
        s_ as s_,
        tril_indices as tril_indices,
        tril_indices_from as tril_indices_from,
        triu_indices as triu_indices,
        triu_indices_from as triu_indices_from,
        unravel_index as unravel_index,
    )
    from phalanx.numpy.indexing.take import (
        choose as choose,
        compress as compress,
        extract as extract,
        place as place,
        put as put,
        put_along_axis as put_along_axis,
        take as take,
        take_along_axis as take_along_axis,
    )
    from phalanx.numpy.indexing.where import (
        argwhere as argwhere,
        flatnonzero as flatnonzero,
        nonzero as nonzero,
        piecewise as piecewise,
        select as select,
        where as where,
    )
    from phalanx.numpy.operands import broadcast_shapes as broadcast_shapes
    from phalanx.numpy.products.convolve import convolve as convolve, correlate as correlate
    from phalanx.numpy.products.einsum import einsum as einsum, einsum_path as einsum_path
    from phalanx.numpy.products.matrix_products import (
        cross as cross,
        dot as dot,
        inner as inner,
        kron as kron,
        matmul as matmul,
        matvec as matvec,
        outer as outer,
        tensordot as tensordot,
        vdot as vdot,
        vecdot as vecdot,
        vecmat as vecmat,
    )
    from phalanx.numpy.reductions.array_reductions import (
        all as all,
        amax as amax,
        amin as amin,
        any as any,
        argmax as argmax,
        argmin as argmin,
        count_nonzero as count_nonzero,
        cumprod as cumprod,
        cumsum as cumsum,
        cumulative_prod as cumulative_prod,
        cumulative_sum as cumulative_sum,
        max as max,
        min as min,
        minmax as minmax,
        prod as prod,
        ptp as ptp,
        sum as sum,
    )
    from phalanx.numpy.reductions.moments import (
        average as average,
        corrcoef as corrcoef,
        cov as cov,
        mean as mean,
        std as std,
        var as var,
    )
    from phalanx.numpy.scalar_types import (
        ComplexWarning as ComplexWarning,
        bfloat16 as bfloat16,
        bool_ as bool,  # noqa: F401
        bool_ as bool_,
        can_cast as can_cast,
        cdouble as cdouble,
        character as character,
        complex64 as complex64,
        complex128 as complex128,
        complex_ as complex_,
        complexfloating as complexfloating,
        csingle as csingle,
        double as double,
        dtype as dtype,
        e as e,
        euler_gamma as euler_gamma,
        finfo as finfo,
        flexible as flexible,
        float4_e2m1fn as float4_e2m1fn,
        float8_e3m4 as float8_e3m4,
        float8_e4m3 as float8_e4m3,
        float8_e4m3b11fnuz as float8_e4m3b11fnuz,
        float8_e4m3fn as float8_e4m3fn,
        float8_e4m3fnuz as float8_e4m3fnuz,
        float8_e5m2 as float8_e5m2,
        float8_e5m2fnuz as float8_e5m2fnuz,
        float8_e8m0fnu as float8_e8m0fnu,
        float16 as float16,
        float32 as float32,
        float64 as float64,
        float_ as float_,
        floating as floating,
        generic as generic,
        get_printoptions as get_printoptions,
        iinfo as iinfo,
        inexact as inexact,
        inf as inf,
        int2 as int2,
        int4 as int4,
        int8 as int8,
        int16 as int16,
        int32 as int32,
        int64 as int64,
        int_ as int_,
        integer as integer,
        isdtype as isdtype,
        issubdtype as issubdtype,
        nan as nan,
        newaxis as newaxis,
        number as number,
        object_ as object_,
        pi as pi,
        printoptions as printoptions,
        promote_types as promote_types,
        result_type as result_type,
        set_printoptions as set_printoptions,
        signedinteger as signedinteger,
        single as single,
        uint as uint,
        uint2 as uint2,
        uint4 as uint4,
        uint8 as uint8,
        uint16 as uint16,
        uint32 as uint32,
        uint64 as uint64,
        unsignedinteger as unsignedinteger,
    )
    from phalanx.numpy.shapes.array_properties import (
        iscomplexobj as iscomplexobj,
        isrealobj as isrealobj,
        isscalar as isscalar,
        iterable as iterable,
        ndim as ndim,
        shape as shape,
        size as size,
    )
    from phalanx.numpy.shapes.diagonals import (
        diag as diag,
        diagflat as diagflat,
        diagonal as diagonal,
        fill_diagonal as fill_diagonal,
        trace as trace,
        tril as tril,
        triu as triu,
    )
    from phalanx.numpy.shapes.insertion import append as append, delete as delete, insert as insert, repeat as repeat
    from phalanx.numpy.shapes.joining import (
        array_split as array_split,
        block as block,
        column_stack as column_stack,
        concat as concat,
        concatenate as concatenate,
        dsplit as dsplit,
        dstack as dstack,
        hsplit as hsplit,
        hstack as hstack,
        split as split,
        stack as stack,
        unstack as unstack,
        vsplit as vsplit,
        vstack as vstack,
    )
    from phalanx.numpy.shapes.rearranging import (
        flip as flip,
        fliplr as fliplr,
        flipud as flipud,
        resize as resize,
        roll as roll,
        rot90 as rot90,
        tile as tile,
        trim_zeros as trim_zeros,
    )
    from phalanx.numpy.shapes.reshaping import (
        atleast_1d as atleast_1d,
        atleast_2d as atleast_2d,
        atleast_3d as atleast_3d,
        broadcast_arrays as broadcast_arrays,
        broadcast_to as broadcast_to,
        expand_dims as expand_dims,
        matrix_transpose as matrix_transpose,
        moveaxis as moveaxis,
        permute_dims as permute_dims,
        ravel as ravel,
        reshape as reshape,
        rollaxis as rollaxis,
        squeeze as squeeze,
        swapaxes as swapaxes,
        transpose as transpose,
    )
    from phalanx.numpy.sorting.sort_and_search import (
        argpartition as argpartition,
        argsort as argsort,
        digitize as digitize,
        lexsort as lexsort,
        partition as partition,
        searchsorted as searchsorted,
        sort as sort,
        sort_complex as sort_complex,
        top_k as top_k,
    )
    from phalanx.numpy.ufuncs.array_equality import (
        allclose as allclose,
        array_equal as array_equal,
        array_equiv as array_equiv,
        isclose as isclose,
    )
    from phalanx.numpy.ufuncs.rounding import around as around, clip as clip, nan_to_num as nan_to_num, round as round
    from phalanx.numpy.ufuncs.ufunc_table import (
        abs as abs,
        absolute as absolute,
        acos as acos,
        acosh as acosh,
        add as add,
        angle as angle,
        arccos as arccos,
        arccosh as arccosh,
        arcsin as arcsin,
        arcsinh as arcsinh,
        arctan as arctan,
        arctan2 as arctan2,
        arctanh as arctanh,
        asin as asin,
        asinh as asinh,
        atan as atan,
        atan2 as atan2,
        atanh as atanh,
        bitwise_and as bitwise_and,
        bitwise_count as bitwise_count,
        bitwise_invert as bitwise_invert,
        bitwise_left_shift as bitwise_left_shift,
        bitwise_not as bitwise_not,
        bitwise_or as bitwise_or,
        bitwise_right_shift as bitwise_right_shift,
        bitwise_xor as bitwise_xor,
        cbrt as cbrt,
        ceil as ceil,
        conj as conj,
        conjugate as conjugate,
        copysign as copysign,
        cos as cos,
        cosh as cosh,
        deg2rad as deg2rad,
        degrees as degrees,
        divide as divide,
        divmod as divmod,
        equal as equal,
        exp as exp,
        exp2 as exp2,
        expm1 as expm1,
        fabs as fabs,
        float_power as float_power,
        floor as floor,
        floor_divide as floor_divide,
        fmax as fmax,
        fmin as fmin,
        fmod as fmod,
        frexp as frexp,
        gcd as gcd,
        greater as greater,
        greater_equal as greater_equal,
        heaviside as heaviside,
        hypot as hypot,
        i0 as i0,
        imag as imag,
        invert as invert,
        iscomplex as iscomplex,
        isfinite as isfinite,
        isinf as isinf,
        isnan as isnan,
        isneginf as isneginf,
        isposinf as isposinf,
        isreal as isreal,
        lcm as lcm,
        ldexp as ldexp,
        left_shift as left_shift,
        less as less,
        less_equal as less_equal,
        log as log,
        log1p as log1p,
        log2 as log2,
        log10 as log10,
        logaddexp as logaddexp,
        logaddexp2 as logaddexp2,
        logical_and as logical_and,
        logical_not as logical_not,
        logical_or as logical_or,
        logical_xor as logical_xor,
        maximum as maximum,
        minimum as minimum,
        mod as mod,
        modf as modf,
        multiply as multiply,
        negative as negative,
        nextafter as nextafter,
        not_equal as not_equal,
        positive as positive,
        pow as pow,
        power as power,
        rad2deg as rad2deg,
        radians as radians,
        real as real,
        reciprocal as reciprocal,
        remainder as remainder,
        right_shift as right_shift,
        rint as rint,
        sign as sign,
        signbit as signbit,
        sin as sin,
        sinc as sinc,
        sinh as sinh,
        spacing as spacing,
        sqrt as sqrt,
        square as square,
        subtract as subtract,
        tan as tan,
        tanh as tanh,
        true_divide as true_divide,
        trunc as trunc,
    )
    from phalanx.numpy.ufuncs.vectorize import (
        apply_along_axis as apply_along_axis,
        apply_over_axes as apply_over_axes,
        frompyfunc as frompyfunc,
        ufunc as ufunc,
        vectorize as vectorize,
    )
    from phalanx.runtime.array import Array as ndarray  # noqa: F401

__getattr__, __dir__ = _publish(
    globals(),
    copy_aliases=True,
    prepare=_attach_stages,
    modules="fft linalg",
    loads="array_methods",
    lazy={
        "creation.array_creation": (
            "array asarray astype copy empty empty_like eye from_dlpack full full_like identity ones ones_like tri "
            "zeros zeros_like"
        ),
        "creation.ranges": "arange geomspace linspace logspace",
        "indexing.index_grids": (
            "c_ diag_indices diag_indices_from fromfunction index_exp indices ix_ mask_indices meshgrid mgrid ogrid r_ "
            "ravel_multi_index s_ tril_indices tril_indices_from triu_indices triu_indices_from unravel_index"
        ),
        "indexing.take": "choose compress extract place put put_along_axis take take_along_axis",
        "indexing.where": "argwhere flatnonzero nonzero piecewise select where",
        "operands": "broadcast_shapes",
        "products.convolve": "convolve correlate",
        "products.einsum": "einsum einsum_path",
        "products.matrix_products": "cross dot inner kron matmul matvec outer tensordot vdot vecdot vecmat",
        "reductions.array_reductions": (
            "all amax amin any argmax argmin count_nonzero cumprod cumsum cumulative_prod cumulative_sum max min "
            "minmax prod ptp sum"
        ),
        "reductions.moments": "average corrcoef cov mean std var",
        "scalar_types": (
            "ComplexWarning bfloat16 bool=bool_ bool_ can_cast cdouble character complex64 complex128 complex_ "
            "complexfloating csingle double dtype e euler_gamma finfo flexible float4_e2m1fn float8_e3m4 float8_e4m3 "
            "float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float16 "
            "float32 float64 float_ floating generic get_printoptions iinfo inexact inf int2 int4 int8 int16 int32 "
            "int64 int_ integer isdtype issubdtype nan newaxis number object_ pi printoptions promote_types "
            "result_type set_printoptions signedinteger single uint uint2 uint4 uint8 uint16 uint32 uint64 "
            "unsignedinteger"
        ),
        "shapes.array_properties": "iscomplexobj isrealobj isscalar iterable ndim shape size",
        "shapes.diagonals": "diag diagflat diagonal fill_diagonal trace tril triu",
        "shapes.insertion": "append delete insert repeat",
        "shapes.joining": (
            "array_split block column_stack concat concatenate dsplit dstack hsplit hstack split stack unstack vsplit "
            "vstack"
        ),
        "shapes.rearranging": "flip fliplr flipud resize roll rot90 tile trim_zeros",
        "shapes.reshaping": (
            "atleast_1d atleast_2d atleast_3d broadcast_arrays broadcast_to expand_dims matrix_transpose moveaxis "
            "permute_dims ravel reshape rollaxis squeeze swapaxes transpose"
        ),
        "sorting.sort_and_search": (
            "argpartition argsort digitize lexsort partition searchsorted sort sort_complex top_k"
        ),
        "ufuncs.array_equality": "allclose array_equal array_equiv isclose",
        "ufuncs.rounding": "around clip nan_to_num round",
        "ufuncs.ufunc_table": (
            "abs absolute acos acosh add angle arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan "
            "atan2 atanh bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or "
            "bitwise_right_shift bitwise_xor cbrt ceil conj conjugate copysign cos cosh deg2rad degrees divide divmod "
            "equal exp exp2 expm1 fabs float_power floor floor_divide fmax fmin fmod frexp gcd greater greater_equal "
            "heaviside hypot i0 imag invert iscomplex isfinite isinf isnan isneginf isposinf isreal lcm ldexp "
            "left_shift less less_equal log log1p log2 log10 logaddexp logaddexp2 logical_and logical_not logical_or "
            "logical_xor maximum minimum mod modf multiply negative nextafter not_equal positive pow power rad2deg "
            "radians real reciprocal remainder right_shift rint sign signbit sin sinc sinh spacing sqrt square "
            "subtract tan tanh true_divide trunc"
        ),
        "ufuncs.vectorize": "apply_along_axis apply_over_axes frompyfunc ufunc vectorize",
        "phalanx.runtime.array": "ndarray=Array",
        "reductions.nan_reductions": "nanargmax nanargmin nancumprod nancumsum nanmax nanmean nanmin nanprod nanstd "
        "nansum nanvar",
        "reductions.quantiles": "median nanmedian nanpercentile nanquantile percentile quantile",
        "reductions.histograms": "bincount histogram histogram2d histogram_bin_edges histogramdd",
        "sorting.sets": "intersect1d isin setdiff1d setxor1d union1d "
        "unique unique_all unique_counts unique_inverse unique_values",
        "calculus": "diff ediff1d gradient interp trapezoid unwrap",
        "polynomial_functions": "poly polyadd polyder polydiv polyfit polyint polymul polysub polyval roots vander",
        "shapes.padding": "pad",
        "creation.window_functions": "bartlett blackman hamming hanning kaiser",
        "bitpacking": "packbits unpackbits",
        "creation.array_files": "frombuffer fromfile fromiter fromstring load save savez",
        "array_printing": "array_repr array_str",
    },
)

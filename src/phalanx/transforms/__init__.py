"""Transformations of functions: derivatives, batching, partial evaluation and rematerialization.

Users see the transformations; the other names are what the packages above build their rules with.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.transforms.backward_logs import (
    append_logs as append_logs,
    collect_logs as collect_logs,
    drop_logs as drop_logs,
    record_logs as record_logs,
    take_logs as take_logs,
)
from phalanx.transforms.batching import (
    AxisData as AxisData,
    BatchTrace as BatchTrace,
    batch_function as batch_function,
    batch_jaxpr as batch_jaxpr,
    canonical_dim as canonical_dim,
    front_dims as front_dims,
    move_mapped_dim as move_mapped_dim,
    named_vmap as named_vmap,
    resolve_in_axes as resolve_in_axes,
    vmap as vmap,
    vmap_flat as vmap_flat,
)
from phalanx.transforms.call_primitives import (
    CallPrimitive as CallPrimitive,
    DivisibleCall as DivisibleCall,
    Division as Division,
    HigherOrder as HigherOrder,
    PartialEvalCall as PartialEvalCall,
    TransformedCall as TransformedCall,
)
from phalanx.transforms.checkpoint_and_remat import (
    checkpoint as checkpoint,
    checkpoint_name as checkpoint_name,
    remat as remat,
)
from phalanx.transforms.flat_function import (
    FlatFunction as FlatFunction,
    function_name as function_name,
    positional_parameters as positional_parameters,
    trace_flat as trace_flat,
)
from phalanx.transforms.jacobian import hessian as hessian, jacfwd as jacfwd, jacrev as jacrev
from phalanx.transforms.jvp_and_vjp import (
    jvp as jvp,
    linear_transpose as linear_transpose,
    linearize as linearize,
    vjp as vjp,
)
from phalanx.transforms.jvp_trace import JVPTrace as JVPTrace, jvp_flat as jvp_flat, jvp_jaxpr as jvp_jaxpr
from phalanx.transforms.key_lowering import lower_on_keys as lower_on_keys
from phalanx.transforms.linear_trace import LinearTrace as LinearTrace
from phalanx.transforms.linearize_jaxpr import linearize_jaxpr as linearize_jaxpr
from phalanx.transforms.partial_eval import (
    PartialEvalJaxprs as PartialEvalJaxprs,
    Policy as Policy,
    everything_saveable as everything_saveable,
    partial_eval_inner_jaxpr as partial_eval_inner_jaxpr,
    partial_eval_jaxpr as partial_eval_jaxpr,
    residual_p as residual_p,
)
from phalanx.transforms.structure_checks import (
    PathLabel as PathLabel,
    check_same_structure as check_same_structure,
    check_same_types as check_same_types,
)
from phalanx.transforms.transpose_jaxpr import transpose_jaxpr as transpose_jaxpr
from phalanx.transforms.value_and_grad import (
    grad as grad,
    select_argnums as select_argnums,
    value_and_grad as value_and_grad,
)

jacobian = jacrev

__getattr__, __dir__ = _publish(
    globals(),
    only="checkpoint checkpoint_name grad hessian jacfwd jacobian jacrev jvp linear_transpose linearize lower_on_keys "
    "remat value_and_grad vjp vmap",
)

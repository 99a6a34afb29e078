"""Optimizers: pairs of pure functions, `init` and `update`, on pytrees of arrays, which can be chained.

Names and signatures follow Optax (`optim.adam(1e-3)`, `optim.chain`, `optim.apply_updates`), so transformations written
for that interface work here. An eager update of a whole model is one compiled program. Builds on `spmd`, `numpy` and
`nn`; `nnx.Optimizer` and training programs call it.

Names are imported on first use. `lazy` below lists the module of each name; the block for type checkers repeats the
list, and a test compares the two.
"""

from phalanx.engine.public_namespace import publish as _publish
from phalanx.optim.gradient_transformation import (
    ScalarOrSchedule as ScalarOrSchedule,
    Schedule as Schedule,
    make_picklable as _make_picklable,
)

TYPE_CHECKING = False  # type checkers take this name for typing.TYPE_CHECKING, whose import would cost time

if TYPE_CHECKING:
    from phalanx.optim.adaptive import (
        FactoredState as FactoredState,
        ScaleByAdamState as ScaleByAdamState,
        ScaleByAmsgradState as ScaleByAmsgradState,
        ScaleByLionState as ScaleByLionState,
        ScaleByRmsState as ScaleByRmsState,
        ScaleByRmsWithCountState as ScaleByRmsWithCountState,
        ScaleByRssState as ScaleByRssState,
        ScaleByRStdDevState as ScaleByRStdDevState,
        ScaleByRStdDevWithCountState as ScaleByRStdDevWithCountState,
        scale_by_adam as scale_by_adam,
        scale_by_adamax as scale_by_adamax,
        scale_by_amsgrad as scale_by_amsgrad,
        scale_by_factored_rms as scale_by_factored_rms,
        scale_by_lion as scale_by_lion,
        scale_by_rms as scale_by_rms,
        scale_by_rss as scale_by_rss,
        scale_by_stddev as scale_by_stddev,
    )
    from phalanx.optim.clipping import (
        adaptive_grad_clip as adaptive_grad_clip,
        clip as clip,
        clip_by_block_rms as clip_by_block_rms,
        clip_by_global_norm as clip_by_global_norm,
        unitwise_norm as unitwise_norm,
        zero_nans as zero_nans,
    )
    from phalanx.optim.composition import (
        MaskedNode as MaskedNode,
        MaskedState as MaskedState,
        PartitionState as PartitionState,
        chain as chain,
        masked as masked,
        multi_transform as multi_transform,
        named_chain as named_chain,
        partition as partition,
    )
    from phalanx.optim.gradient_accumulation import (
        ApplyEvery as ApplyEvery,
        ApplyIfFiniteState as ApplyIfFiniteState,
        MultiSteps as MultiSteps,
        MultiStepsState as MultiStepsState,
        apply_every as apply_every,
        apply_if_finite as apply_if_finite,
        skip_large_updates as skip_large_updates,
        skip_not_finite as skip_not_finite,
    )
    from phalanx.optim.gradient_transformation import (
        EmptyState as EmptyState,
        GradientTransformation as GradientTransformation,
        GradientTransformationExtraArgs as GradientTransformationExtraArgs,
        identity as identity,
        stateless as stateless,
        stateless_with_tree_map as stateless_with_tree_map,
        with_extra_args_support as with_extra_args_support,
    )
    from phalanx.optim.hyperparameters import (
        InjectHyperparamsState as InjectHyperparamsState,
        inject_hyperparams as inject_hyperparams,
        inject_stateful_hyperparams as inject_stateful_hyperparams,
    )
    from phalanx.optim.losses import (
        cosine_distance as cosine_distance,
        cosine_similarity as cosine_similarity,
        hinge_loss as hinge_loss,
        huber_loss as huber_loss,
        kl_divergence as kl_divergence,
        l2_loss as l2_loss,
        log_cosh as log_cosh,
        sigmoid_binary_cross_entropy as sigmoid_binary_cross_entropy,
        smooth_labels as smooth_labels,
        softmax_cross_entropy as softmax_cross_entropy,
        softmax_cross_entropy_with_integer_labels as softmax_cross_entropy_with_integer_labels,
        squared_error as squared_error,
    )
    from phalanx.optim.optimizers import (
        adafactor as adafactor,
        adagrad as adagrad,
        adam as adam,
        adamax as adamax,
        adamaxw as adamaxw,
        adamw as adamw,
        amsgrad as amsgrad,
        lamb as lamb,
        lars as lars,
        lion as lion,
        nadam as nadam,
        nadamw as nadamw,
        rmsprop as rmsprop,
        sgd as sgd,
    )
    from phalanx.optim.scaling import (
        AddDecayedWeightsState as AddDecayedWeightsState,
        AddNoiseState as AddNoiseState,
        EmaState as EmaState,
        ScaleByScheduleState as ScaleByScheduleState,
        TraceState as TraceState,
        add_decayed_weights as add_decayed_weights,
        add_noise as add_noise,
        ema as ema,
        scale as scale,
        scale_by_learning_rate as scale_by_learning_rate,
        scale_by_param_block_rms as scale_by_param_block_rms,
        scale_by_schedule as scale_by_schedule,
        scale_by_sign as scale_by_sign,
        scale_by_trust_ratio as scale_by_trust_ratio,
        set_to_zero as set_to_zero,
        trace as trace,
    )
    from phalanx.optim.schedules import (
        constant_schedule as constant_schedule,
        cosine_decay_schedule as cosine_decay_schedule,
        cosine_onecycle_schedule as cosine_onecycle_schedule,
        exponential_decay as exponential_decay,
        join_schedules as join_schedules,
        linear_onecycle_schedule as linear_onecycle_schedule,
        linear_schedule as linear_schedule,
        piecewise_constant_schedule as piecewise_constant_schedule,
        piecewise_interpolate_schedule as piecewise_interpolate_schedule,
        polynomial_schedule as polynomial_schedule,
        sgdr_schedule as sgdr_schedule,
        warmup_constant_schedule as warmup_constant_schedule,
        warmup_cosine_decay_schedule as warmup_cosine_decay_schedule,
        warmup_exponential_decay_schedule as warmup_exponential_decay_schedule,
    )
    from phalanx.optim.tree_arithmetic import (
        apply_updates as apply_updates,
        bias_correction as bias_correction,
        global_norm as global_norm,
        incremental_update as incremental_update,
        safe_increment as safe_increment,
        safe_int32_increment as safe_int32_increment,
        update_moment as update_moment,
    )

__getattr__, __dir__ = _publish(
    globals(),
    lazy={
        "adaptive": (
            "FactoredState ScaleByAdamState ScaleByAmsgradState ScaleByLionState ScaleByRmsState "
            "ScaleByRmsWithCountState ScaleByRssState ScaleByRStdDevState ScaleByRStdDevWithCountState "
            "scale_by_adam scale_by_adamax scale_by_amsgrad scale_by_factored_rms scale_by_lion scale_by_rms "
            "scale_by_rss scale_by_stddev"
        ),
        "clipping": "adaptive_grad_clip clip clip_by_block_rms clip_by_global_norm unitwise_norm zero_nans",
        "composition": "MaskedNode MaskedState PartitionState chain masked multi_transform named_chain partition",
        "gradient_accumulation": (
            "ApplyEvery ApplyIfFiniteState MultiSteps MultiStepsState apply_every apply_if_finite "
            "skip_large_updates skip_not_finite"
        ),
        "gradient_transformation": (
            "EmptyState GradientTransformation GradientTransformationExtraArgs identity "
            "stateless stateless_with_tree_map with_extra_args_support"
        ),
        "hyperparameters": "InjectHyperparamsState inject_hyperparams inject_stateful_hyperparams",
        "losses": (
            "cosine_distance cosine_similarity hinge_loss huber_loss kl_divergence l2_loss log_cosh "
            "sigmoid_binary_cross_entropy smooth_labels softmax_cross_entropy "
            "softmax_cross_entropy_with_integer_labels squared_error"
        ),
        "optimizers": "adafactor adagrad adam adamax adamaxw adamw amsgrad lamb lars lion nadam nadamw rmsprop sgd",
        "scaling": (
            "AddDecayedWeightsState AddNoiseState EmaState ScaleByScheduleState TraceState add_decayed_weights "
            "add_noise ema scale scale_by_learning_rate scale_by_param_block_rms scale_by_schedule scale_by_sign "
            "scale_by_trust_ratio set_to_zero trace"
        ),
        "schedules": (
            "constant_schedule cosine_decay_schedule cosine_onecycle_schedule exponential_decay join_schedules "
            "linear_onecycle_schedule linear_schedule piecewise_constant_schedule piecewise_interpolate_schedule "
            "polynomial_schedule sgdr_schedule warmup_constant_schedule warmup_cosine_decay_schedule "
            "warmup_exponential_decay_schedule"
        ),
        "tree_arithmetic": (
            "apply_updates bias_correction global_norm incremental_update safe_increment safe_int32_increment "
            "update_moment"
        ),
    },
    wrap=_make_picklable,
)

// What is said about a moving average that cannot be, or of which only some passes were told.

// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{ema-decay=1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=ONE
// RUN: not trc-opt %s -p 'plan{ema-decay=-0.5}' --no-reproducer 2>&1 | filecheck %s --check-prefix=NEGATIVE
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{ema-decay=slow}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORD
// RUN: not trc-opt %s -p 'plan{ema-warmup=true}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WARMUP
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{ema-decay=0.9}' --no-reproducer 2>&1 | filecheck %s --check-prefix=UNKNOWN
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{ema-decay=0.9},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' --no-reproducer 2>&1 | filecheck %s --check-prefix=DEAD
// RUN: not trc-opt %s -p 'plan-derive-all-shapes{ema-warmup=true}' --no-reproducer 2>&1 | filecheck %s --check-prefix=OPTION

// ONE: option ema-decay: EMA: decay must be between 0 and 1 (at most 0.99999994, the last float32 below 1), not 1.0
// NEGATIVE: option ema-decay: EMA: decay must be between 0 and 1 {{.*}}, not -0.5
// WORD: option ema-decay must be a number, not 'slow'
// WARMUP: option ema-warmup needs a moving average: give ema-decay
// UNKNOWN: ema_update names @ema_alpha, which is not in the layout table: run plan-derive-all-shapes with the options of graph-build-computation
// DEAD: no node reads tensor @ema_alpha: run plan-derive-all-shapes with the options of graph-build-computation
// OPTION: unknown option of pass plan-derive-all-shapes: 'ema-warmup'

arch.model @net(%x: tensor<?x1x1x4xf32>) {
  %0 = arch.fc %x {out_features = 3} layer "fc1" first : tensor<?x1x1x3xf32>
  %1 = arch.softmax_ce %0 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %1
}

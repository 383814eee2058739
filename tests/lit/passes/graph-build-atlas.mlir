// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients,graph-build-atlas' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=7 train-samples=13 val-samples=15},plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients,graph-build-atlas' | filecheck %s --check-prefix=SHAPES
// RUN: not trc-opt %s -p 'graph-build-atlas' --no-reproducer 2>&1 | filecheck %s --check-prefix=STEPS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients,graph-build-atlas,graph-build-atlas' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE

// With one shape for all columns nothing depends on it.
// CHECK: graph.atlas captures [
// CHECK: @train DEEP_FWD_BWD [0, 0, 0, 0] column 0
// SHAPES: @train DEEP_FWD_BWD [5, 2, 2, 1] column 0
// SHAPES: @train OPTIMIZER [0, 0, 0, 0] column 0
// SHAPES: @train DEEP_FWD_BWD [3, 2, 2, 1] column 1
// SHAPES-NOT: @train OPTIMIZER
// SHAPES: @infer INF_MAIN_A [7, 2, 2, 1] column 4
// SHAPES: table {
// STEPS: the module has no graph.step: run graph-schedule-steps first
// TWICE: graph-build-atlas has already run on this module

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

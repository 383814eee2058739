// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps' | filecheck %s
// RUN: not trc-opt %s -p 'graph-schedule-steps' --no-reproducer 2>&1 | filecheck %s --check-prefix=GRAPHS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-schedule-steps' --no-reproducer 2>&1 | filecheck %s --check-prefix=GRAPHS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-schedule-steps' --no-reproducer 2>&1 | filecheck %s --check-prefix=VARIANTS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,graph-schedule-steps' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE

// CHECK: graph.step @transfer_a of @train columns [0, 1, 2, 3, 4, 5] buckets [TRANSFER_A] after [{{\[\]}}]
// CHECK: graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, FIRST_LAYER_FWD_A, DEEP_FWD_BWD, NAN_CHECK_AND_GRAD_SCALING, ACCUM_METRICS, OPTIMIZER]
// CHECK: graph.step @train_b of @train columns [0, 2] buckets [ZERO_GRAD, FIRST_LAYER_FWD_B,
// CHECK: graph.step @train_last_a of @train columns [1, 3] buckets [ZERO_GRAD, {{.*}}, ACCUM_METRICS_TRAIN_LAST, OPTIMIZER]
// CHECK: graph.step @train_last_b
// Labels and images are copied side by side; then each node waits for the one before it.
// CHECK: graph.step @infer_a of @infer columns [4] buckets [INF_MAIN_A, ACCUM_METRICS] after [{{\[\], \[\]}}, [0, 1], [2], [3], [4]]
// CHECK: graph.step @infer_last_b of @infer columns [5] buckets [INF_MAIN_B, ACCUM_METRICS_VAL_LAST]
// CHECK: graph.step @clear_metrics of @train columns [0, 1, 2, 3, 4, 5] buckets [CLEAR_METRICS]
// GRAPHS: the module has no graph.computation: run graph-build-computation first
// VARIANTS: the module has no graph.variant: run graph-share-or-clone first
// TWICE: graph-schedule-steps has already run on this module

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

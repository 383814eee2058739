// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{world-size=2}' | filecheck %s --check-prefix=RANKS
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{optimizer=sgd weight-decay=0.1 decoupled=true}' | filecheck %s --check-prefix=SGD
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd momentum=0.9},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{optimizer=sgd momentum=0.9 nesterov=true weight-decay=1e-4}' | filecheck %s --check-prefix=NESTEROV
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16},plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' | filecheck %s --check-prefix=AMP
// RUN: echo '{"fc1": "materialised", "fc2": "materialised"}' > %t.json
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-select-kernels{choices="%t.json"},plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' | filecheck %s --check-prefix=UNFUSED
// RUN: not trc-opt %s -p 'graph-build-computation' --no-reproducer 2>&1 | filecheck %s --check-prefix=PLAN
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-build-computation' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{world-size=0}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORLD
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{optimizer=sgd}' --no-reproducer 2>&1 | filecheck %s --check-prefix=DEAD
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation' --no-reproducer 2>&1 | filecheck %s --check-prefix=UNKNOWN

// CHECK: graph.computation @train {
// CHECK: graph.bucket TRANSFER_A on TRANS {
// CHECK-NEXT: graph.range h2d_copy writes(I_A_LABEL to I_A_DATA) {buffer = "A"}
// CHECK: graph.bucket FIRST_LAYER_FWD_A on COMP_1 {
// CHECK-NEXT: graph.compute copy reads(@label_a) writes(@label)
// CHECK-NEXT: graph.compute flatten_fwd reads(@data_a) writes(@flatten1.output) layer "flatten1"
// CHECK: graph.bucket DEEP_FWD_BWD on COMP_1 {
// CHECK-NEXT: graph.compute fc_fwd reads(@flatten1.output, @fc1.weight, @fc1.bias) writes(@relu1.output) {act = "relu"} layer "relu1"
// CHECK-NEXT: graph.compute fc_fwd reads(@relu1.output, @fc2.weight) writes(@fc2.output) {act = "none"} layer "fc2"
// CHECK-NEXT: graph.compute softmax_ce_fwd reads(@fc2.output, @label) writes(@softmax_ce.probs, @loss, @top1, @top5) {label_smoothing = 0.1} layer "softmax_ce"
// CHECK-NEXT: graph.compute softmax_ce_bwd reads(@softmax_ce.probs, @label) writes(@fc2.output.grad) scalars(@scaling) {label_smoothing = 0.1} layer "softmax_ce"
// CHECK-NEXT: graph.compute fc_bwd_weight reads(@fc2.output.grad, @relu1.output) writes(@fc2.weight.grad) layer "fc2"
// CHECK-NEXT: graph.compute fc_bwd_data reads(@fc2.output.grad, @fc2.weight, @relu1.output) writes(@fc1.output.grad) {act = "relu"} layer "fc2"
// CHECK-NEXT: graph.compute fc_bwd_weight reads(@fc1.output.grad, @flatten1.output) writes(@fc1.weight.grad) layer "fc1"
// CHECK-NEXT: graph.compute fc_bwd_bias reads(@fc1.output.grad) writes(@fc1.bias.grad) layer "fc1"
// CHECK-NEXT: }
// CHECK: graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
// CHECK: graph.range check_nan reads(G_BN_BIAS to G_DEEP_CONV) writes(@has_nan)
// CHECK: graph.bucket OPTIMIZER on UPDATE {
// CHECK-NEXT: graph.compute fetch_rate writes(@lr) scalars(@lr_table, @iteration)
// CHECK-NEXT: graph.compute bias_correction
// CHECK-NEXT: graph.range adam_update reads(G_FC_WEIGHT to G_DEEP_CONV) updates(W_FC_WEIGHT to W_DEEP_CONV, M_FC_WEIGHT to M_DEEP_CONV, V_FC_WEIGHT to V_DEEP_CONV)
// CHECK-NEXT: graph.range adam_update reads(G_BN_BIAS to G_FC_BIAS)
// CHECK-NEXT: graph.compute count_step updates(@iteration, @applied) scalars(@has_nan)
// CHECK: graph.compute accumulate_metrics {{.*}} scalars(@batch_size, @has_nan)
// CHECK: graph.compute accumulate_metrics {{.*}} scalars(@last_train_batch_size, @has_nan)
// CHECK: graph.computation @infer {
// CHECK: graph.compute fc_fwd reads(@flatten1.output.inf, @fc1.weight, @fc1.bias) writes(@relu1.output.inf) {act = "relu"} layer "relu1"
// CHECK: graph.compute softmax_ce_infer reads(@fc2.output.inf, @label) writes(@predicted, @loss, @top1, @top5)
// CHECK: graph.compute accumulate_metrics {{.*}} scalars(@val_batch_size, @zero_flag)
// CHECK: graph.compute accumulate_metrics {{.*}} scalars(@last_val_batch_size, @zero_flag)

// RANKS: graph.bucket FIRST_COMM on UPDATE {
// RANKS-NEXT: graph.range mean_allreduce updates(G_BN_BIAS to G_FIRST_CONV)
// RANKS: graph.range mean_allreduce updates(G_DEEP_CONV to R_RESULT)
// RANKS: graph.range mean_allreduce updates(R_RESULT_ACCUMULATED to R_RESULT_ACCUMULATED)

// SGD: graph.range sgd_update {{.*}} {decay = "decoupled"}
// SGD-NEXT: graph.range sgd_update {{.*}} {decay = "none"}
// NESTEROV: graph.range momentum_update {{.*}} {nesterov = true, decay = "l2"}

// AMP: graph.compute fc_fwd reads(@flatten1.output, @fc1.weight.half, @fc1.bias)
// AMP: graph.compute scale_update updates(@scaling, @growth_counter) scalars(@has_nan)
// AMP-NEXT: graph.compute count_step
// AMP: graph.range cast_range reads(W_FC_WEIGHT to W_DEEP_CONV) writes(A_FC_WEIGHT to A_DEEP_CONV)

// A layer that was told to keep its result leaves the activation a layer of its own, forward and back.
// UNFUSED: graph.compute fc_fwd reads(@flatten1.output, @fc1.weight, @fc1.bias) writes(@fc1.output) {act = "none"} layer "fc1"
// UNFUSED-NEXT: graph.compute relu_fwd reads(@fc1.output) writes(@relu1.output) layer "relu1"
// UNFUSED: graph.compute fc_bwd_data reads(@fc2.output.grad, @fc2.weight) writes(@relu1.output.grad) {act = "none"} layer "fc2"
// UNFUSED-NEXT: graph.compute relu_bwd reads(@relu1.output.grad, @relu1.output) writes(@fc1.output.grad) layer "relu1"

// PLAN: the module has no memplan.plan: run plan-create-memory-plans first
// TWICE: graph-build-computation has already run on this module
// WORLD: option world-size must be at least 1, not 0
// DEAD: no node reads tensor @beta1: run plan-derive-all-shapes with the options of graph-build-computation
// UNKNOWN: bias_correction names @bias_correction1, which is not in the layout table

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

// The fused chain of a residual block, forward, backward and in inference, under mixed precision.

// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=2 precision=amp-fp16},plan-select-kernels,plan-derive-all-shapes{optimizer=sgd},plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation{optimizer=sgd}' | filecheck %s

// CHECK: graph.bucket DEEP_FWD_BWD on COMP_1 {
// CHECK-NEXT: graph.compute conv_stats_fwd reads(@conv1.output, @conv2.weight.half) writes(@conv2.output, @bn1.sum, @bn1.sumsq) {stride = 1, padding = 1, groups = 1} layer "conv2"
// CHECK-NEXT: graph.compute bn_finalize reads(@conv2.output, @bn1.sum, @bn1.sumsq, @bn1.weight, @bn1.bias, @bn1.running_mean, @bn1.running_var) writes(@bn1.scale, @bn1.shift, @bn1.next_mean, @bn1.next_var, @bn1.saved_mean, @bn1.saved_invstd) {eps = {{.*}}, momentum = 0.1} layer "bn1"
// CHECK-NEXT: graph.compute conv_norm_stats_fwd reads(@conv2.output, @conv3.weight.half, @bn1.scale, @bn1.shift) writes(@conv3.output, @bn2.sum, @bn2.sumsq) {stride = 1, padding = 1, groups = 1, act = "relu"} layer "conv3"
// CHECK-NEXT: graph.compute bn_finalize {{.*}} layer "bn2"
// CHECK-NEXT: graph.compute norm_add_act_fwd reads(@conv3.output, @bn2.scale, @bn2.shift, @conv1.output) writes(@relu2.output) {act = "relu"} layer "relu2"
// CHECK-NEXT: graph.compute gap_fwd reads(@relu2.output) writes(@gap1.output) layer "gap1"
// CHECK: graph.compute gap_bwd reads(@gap1.output.grad) writes(@relu2.output.grad) layer "gap1"
// CHECK-NEXT: graph.compute relu_bwd reads(@relu2.output.grad, @relu2.output) writes(@add1.output.grad) layer "relu2"
// CHECK-NEXT: graph.compute norm_bwd reads(@add1.output.grad, @conv3.output, @bn2.scale, @bn2.shift, @bn2.weight, @bn2.saved_mean, @bn2.saved_invstd) writes(@bn2.weight.grad, @bn2.bias.grad, @conv3.output.grad) {act = "none"} layer "bn2"
// CHECK-NEXT: graph.compute conv_norm_bwd_weight reads(@conv3.output.grad, @conv2.output, @bn1.scale, @bn1.shift) writes(@conv3.weight.grad_half) {stride = 1, padding = 1, groups = 1, act = "relu"} layer "conv3"
// CHECK-NEXT: graph.compute conv_bwd_data reads(@conv3.output.grad, @conv3.weight.half) writes(@bn1.output.grad) {stride = 1, padding = 1, groups = 1} layer "conv3"
// CHECK-NEXT: graph.compute norm_bwd {{.*}} writes(@bn1.weight.grad, @bn1.bias.grad, @conv2.output.grad) {act = "relu"} layer "bn1"
// CHECK-NEXT: graph.compute conv_bwd_weight reads(@conv2.output.grad, @conv1.output) writes(@conv2.weight.grad_half)
// CHECK-NEXT: graph.compute conv_bwd_data {{.*}} writes(@conv1.output.grad.part0)
// CHECK-NEXT: graph.compute add_fwd reads(@conv1.output.grad.part0, @add1.output.grad) writes(@conv1.output.grad) layer "conv1"
// CHECK-NEXT: }
// CHECK: graph.bucket CAST_DEEP_GRAD_FP16_TO_FP32 on UPDATE {
// CHECK-NEXT: graph.range cast_range reads(G_DEEP_CONV_FP16 to G_DEEP_CONV_FP16) writes(G_DEEP_CONV to G_DEEP_CONV)
// CHECK: graph.bucket CAST_FIRST_GRAD_FP16_TO_FP32 on UPDATE {
// CHECK: graph.computation @infer {
// CHECK: graph.compute conv_fwd reads(@relu1.output.inf, @conv3.weight.half) writes(@conv3.output.inf) {stride = 1, padding = 1, groups = 1} layer "conv3"
// CHECK-NEXT: graph.compute affine_add_act_fwd reads(@conv3.output.inf, @bn2.eq_scale, @bn2.eq_bias, @conv1.output.inf) writes(@relu2.output.inf) {act = "relu"} layer "relu2"

arch.model @net(%x: tensor<?x4x4x8xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 1} layer "conv1" first : tensor<?x4x4x8xf32>
  %1 = arch.basic_block %0 {out_channels = 8} layer "conv2" parts ["conv2", "bn1", "relu1", "conv3", "bn2", "add1", "relu2"] : tensor<?x4x4x8xf32>
  %2 = arch.gap_fc %1 {out_features = 3} layer "gap1" parts ["gap1", "fc1"] : tensor<?x1x1x3xf32>
  %3 = arch.softmax_ce %2 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %3
}

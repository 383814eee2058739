// A moving average of the weights, through the passes that know of it: tensors, nodes, steps, captures.

// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{ema-decay=0.999}' | trc-opt | filecheck %s --check-prefix=SHAPES
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16 channels=3},plan-derive-all-shapes{ema-decay=0.99}' | filecheck %s --check-prefix=HALF
// RUN: trc-opt %s -p 'plan{ema-decay=0.99 batch=4 val-batch=3 val-samples=5}' | trc-opt | filecheck %s
// RUN: trc-opt %s -p 'plan{ema-decay=0.99 ema-warmup=true mode=regions precision=amp-fp16 channels=3}' | trc-opt | filecheck %s --check-prefix=AMP
// RUN: trc-opt %s -p 'plan{batch=4}' | filecheck %s --check-prefix=WITHOUT
// RUN: trc-opt %s -p 'plan{ema-decay=0.99 world-size=2}' | filecheck %s --check-prefix=RANKS

// Each average stands behind what it is the average of, begins like it, and lies in a region of its own.
// SHAPES:      memplan.tensor @ema_alpha S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.001
// SHAPES:      memplan.tensor @accum_top5 R_RESULT_ACCUMULATED f32 [1, 1, 1, 1]
// SHAPES-NEXT: memplan.tensor @accum_ema_loss R_RESULT_ACCUMULATED f32 [1, 1, 1, 1]
// SHAPES-NEXT: memplan.tensor @accum_ema_top1 R_RESULT_ACCUMULATED
// SHAPES-NEXT: memplan.tensor @accum_ema_top5 R_RESULT_ACCUMULATED
// SHAPES:      memplan.tensor @conv1.weight W_FIRST_CONV f32 [8, 3, 3, 4] init kaiming_uniform fan 36 layer "conv1"
// SHAPES:      memplan.tensor @conv1.weight.v V_FIRST_CONV
// SHAPES-NEXT: memplan.tensor @conv1.weight.ema E_FIRST_CONV f32 [8, 3, 3, 4] init kaiming_uniform fan 36 layer "conv1"
// SHAPES:      memplan.tensor @bn1.weight.ema E_BN_WEIGHT f32 [1, 1, 1, 8] init constant 1.0 layer "bn1"
// SHAPES:      memplan.tensor @bn1.bias.ema E_BN_BIAS f32 [1, 1, 1, 8] layer "bn1"
// SHAPES:      memplan.tensor @bn1.running_mean B_PREV_MEAN
// SHAPES-NEXT: memplan.tensor @bn1.running_mean.ema E_STAT_MEAN f32 [1, 1, 1, 8] layer "bn1"
// SHAPES-NEXT: memplan.tensor @bn1.running_var B_PREV_VAR
// SHAPES-NEXT: memplan.tensor @bn1.running_var.ema E_STAT_VAR f32 [1, 1, 1, 8] init constant 1.0 layer "bn1"
// SHAPES-NEXT: memplan.tensor @bn1.next_mean B_NEXT_MEAN
// SHAPES-NEXT: memplan.tensor @bn1.next_var B_NEXT_VAR
// SHAPES-NEXT: memplan.tensor @bn1.eq_bias W_EQ_BIAS
// SHAPES-NEXT: memplan.tensor @bn1.eq_bias.ema E_EQ_BIAS
// SHAPES-NEXT: memplan.tensor @bn1.eq_scale W_EQ_SCALE
// SHAPES-NEXT: memplan.tensor @bn1.eq_scale.ema E_EQ_SCALE f32 [1, 1, 1, 8] init constant 1.0 layer "bn1"
// SHAPES:      memplan.tensor @fc1.weight.ema E_FC_WEIGHT
// SHAPES:      memplan.tensor @fc1.bias.ema E_FC_BIAS

// HALF:      memplan.tensor @ema_alpha S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.01
// HALF:      memplan.tensor @conv1.weight.half A_FIRST_CONV f16 [8, 3, 3, 4] of 3 layer "conv1"
// HALF:      memplan.tensor @conv1.weight.ema E_FIRST_CONV f32 [8, 3, 3, 4] of 3 init kaiming_uniform fan 27 layer "conv1"
// HALF-NEXT: memplan.tensor @conv1.weight.half.ema E_FIRST_CONV_FP16 f16 [8, 3, 3, 4] of 3 layer "conv1"

// The update follows the counters; batch norm is folded twice; inference reads averages only and has sums of its own.
// CHECK:      graph.bucket EMA_UPDATE on UPDATE {
// CHECK-NEXT:   graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@ema_alpha, @applied, @has_nan) {warmup = false}
// CHECK-NEXT:   graph.range ema_update reads(B_PREV_MEAN to B_PREV_VAR) updates(E_STAT_MEAN to E_STAT_VAR) scalars(@ema_alpha, @applied, @has_nan) {warmup = false}
// CHECK-NEXT: }
// CHECK:      graph.bucket UPDATE_BN_INF_PARAMS on UPDATE {
// CHECK-NEXT:   graph.compute bn_fold reads(@bn1.weight, @bn1.bias, @bn1.running_mean, @bn1.running_var) writes(@bn1.eq_scale, @bn1.eq_bias)
// CHECK-NEXT:   graph.compute bn_fold reads(@bn1.weight.ema, @bn1.bias.ema, @bn1.running_mean.ema, @bn1.running_var.ema) writes(@bn1.eq_scale.ema, @bn1.eq_bias.ema)
// CHECK:      graph.bucket INF_EMA_A on COMP_1 {
// CHECK-NEXT:   graph.compute copy reads(@label_a) writes(@label)
// CHECK-NEXT:   graph.compute conv_fwd reads(@data_a, @conv1.weight.ema) writes(@conv1.output.inf)
// CHECK-NEXT:   graph.compute affine_fwd reads(@conv1.output.inf, @bn1.eq_scale.ema, @bn1.eq_bias.ema) writes(@relu1.output.inf)
// CHECK-NEXT:   graph.compute fc_fwd reads(@relu1.output.inf, @fc1.weight.ema, @fc1.bias.ema) writes(@fc1.output.inf)
// CHECK-NEXT:   graph.compute softmax_ce_infer
// CHECK-NEXT:   graph.compute accumulate_batch reads(@loss, @top1, @top5, @label) updates(@accum_ema_loss, @accum_ema_top1, @accum_ema_top5)
// CHECK-NEXT: }
// CHECK:      graph.bucket INF_EMA_B on COMP_1 {
// CHECK:      graph.step @train_a of @train columns [0, 2] buckets [{{.*}}, OPTIMIZER, EMA_UPDATE]
// CHECK:      graph.step @infer_a of @infer columns [4] buckets [INF_MAIN_A, ACCUM_METRICS]
// CHECK:      graph.step @infer_ema_a of @infer columns [4] buckets [INF_EMA_A]
// CHECK:      graph.step @infer_ema_b of @infer columns [4] buckets [INF_EMA_B]
// CHECK:      graph.step @infer_ema_last_a of @infer columns [5] buckets [INF_EMA_A]
// CHECK-NOT:  cast_ema
// CHECK:      @train EMA_UPDATE [0, 0, 0, 0] column 0
// CHECK:      @infer INF_EMA_A [3, 4, 4, 4] column 4
// CHECK:      @infer INF_EMA_A [2, 4, 4, 4] column 5

// Half weights of the average are made where a validation wants them, not in a training step.
// AMP: graph.range ema_update {{.*}} {warmup = true}
// AMP: graph.bucket CAST_EMA_FP32_TO_FP16 on COMP_1 {
// AMP-NEXT: graph.range cast_range reads(E_FC_WEIGHT to E_DEEP_CONV) writes(E_FC_WEIGHT_FP16 to E_DEEP_CONV_FP16)
// AMP: graph.compute conv_fwd reads(@data_a, @conv1.weight.half.ema)
// AMP: graph.compute fc_fwd reads(@relu1.output.inf, @fc1.weight.half.ema, @fc1.bias.ema)
// AMP: graph.step @train_a {{.*}} EMA_UPDATE, CAST_MAIN_FP32_TO_FP16] after
// AMP: graph.step @cast_ema of @train columns [0, 1, 2, 3, 4, 5] buckets [CAST_EMA_FP32_TO_FP16]

// WITHOUT-NOT: {{ema|EMA| E_}}

// RANKS: graph.bucket VAL_RESULT_COMM on UPDATE {
// RANKS-NEXT: graph.range mean_allreduce updates(R_RESULT_ACCUMULATED to R_RESULT_ACCUMULATED)

arch.model @net(%x: tensor<?x4x4x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1} layer "conv1" first : tensor<?x4x4x8xf32>
  %1 = arch.bn2d %0 layer "bn1" : tensor<?x4x4x8xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x4x4x8xf32>
  %3 = arch.fc %2 {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

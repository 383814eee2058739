// The kinds of a moving average, and what the verifier says about nodes that do not fit them.

// RUN: trc-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: trc-opt %s --split-input-file --verify-diagnostics | trc-opt --split-input-file | filecheck %s

// CHECK: graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@ema_alpha, @applied, @has_nan) {warmup = true}
// CHECK: graph.compute accumulate_batch reads(@loss, @top1, @top5, @label) updates(@accum_ema_loss, @accum_ema_top1, @accum_ema_top5)

memplan.tensor @ema_alpha S_SCALAR_FP32 f32 [1, 1, 1, 1] init constant 0.001
memplan.tensor @applied S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @has_nan S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @label T_TEMP_INT32 i32 [4, 1, 1, 1]
memplan.tensor @loss R_RESULT f32 [1, 1, 1, 1]
memplan.tensor @top1 R_RESULT f32 [1, 1, 1, 1]
memplan.tensor @top5 R_RESULT f32 [1, 1, 1, 1]
memplan.tensor @accum_ema_loss R_RESULT_ACCUMULATED f32 [1, 1, 1, 1]
memplan.tensor @accum_ema_top1 R_RESULT_ACCUMULATED f32 [1, 1, 1, 1]
memplan.tensor @accum_ema_top5 R_RESULT_ACCUMULATED f32 [1, 1, 1, 1]

graph.computation @train {
  graph.bucket EMA_UPDATE on UPDATE {
    graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@ema_alpha, @applied, @has_nan) {warmup = true}
  }
}
graph.computation @infer {
  graph.bucket INF_EMA_A on COMP_1 {
    graph.compute accumulate_batch reads(@loss, @top1, @top5, @label) updates(@accum_ema_loss, @accum_ema_top1, @accum_ema_top5)
  }
}

// -----

memplan.tensor @s S_SCALAR_FP32 f32 [1, 1, 1, 1]

graph.computation @train {
  graph.bucket EMA_UPDATE on UPDATE {
    // expected-error@+1 {{kind ema_update takes 3 scalars (alpha, applied, has_nan), not 1}}
    graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@s) {warmup = false}
    // expected-error@+1 {{kind ema_update updates 1 operands (e), not 0}}
    graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) scalars(@s, @s, @s) {warmup = false}
    // expected-error@+1 {{kind ema_update is written as graph.range, not graph.compute}}
    graph.compute ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@s, @s, @s) {warmup = false}
    // expected-error@+1 {{warmup}}
    graph.range ema_update reads(W_BN_BIAS to W_DEEP_CONV) updates(E_BN_BIAS to E_DEEP_CONV) scalars(@s, @s, @s)
  }
}

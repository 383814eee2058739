// mlir-opt reads the generic text, and what it prints reads back.

// REQUIRES: mlir-opt
// RUN: THROUGH_MLIR

memplan.tensor @y F_FEATURE_FP32 f32 [4, 1, 1, 10]
memplan.tensor @mask S_MASK i8 [4, 1, 1, 10]
memplan.tensor @seed S_SCALAR_INT32 i32 [1, 1, 1, 2]
memplan.tensor @iteration S_SCALAR_INT32 i32 [1, 1, 1, 1]
graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    graph.compute dropout_fwd reads(@y) writes(@y, @mask) scalars(@seed, @iteration) {p = 0.1, stream = 7} on COMP_2 layer "dropout1"
  }
  graph.bucket ZERO_GRAD on UPDATE {
    graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
  }
}
graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, DEEP_FWD_BWD] after [[], [0]]
graph.atlas captures [
  @train ZERO_GRAD [0, 0, 0, 0] column 0
] table {
  train_base [ZERO_GRAD = 0]
}
// CHECK:       graph.compute dropout_fwd reads(@y) writes(@y, @mask) scalars(@seed, @iteration) {p = 0.1, stream = 7} on COMP_2 layer "dropout1"
// CHECK:       graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
// CHECK:       graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, DEEP_FWD_BWD] after {{\[\[\], \[0\]\]}}
// CHECK:         train_base [ZERO_GRAD = 0],

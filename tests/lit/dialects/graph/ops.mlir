// Every operation of graph in its own text and in generic text.

// RUN: ROUNDTRIP
// RUN: GENERIC

memplan.tensor @label_a I_A_LABEL i32 [4, 1, 1, 1]
memplan.tensor @label T_TEMP_INT32 i32 [4, 1, 1, 1]
memplan.tensor @x F_FEATURE_FP32 f32 [4, 1, 1, 16]
memplan.tensor @y F_FEATURE_FP32 f32 [4, 1, 1, 10]
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [10, 1, 1, 16] layer "fc1"
memplan.tensor @fc1.bias W_FC_BIAS f32 [1, 1, 1, 10] layer "fc1"
memplan.tensor @mask S_MASK i8 [4, 1, 1, 10]
memplan.tensor @seed S_SCALAR_INT32 i32 [1, 1, 1, 2]
memplan.tensor @iteration S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @applied S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @has_nan S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @lr S_SCALAR_FP32 f32 [1, 1, 1, 1]
memplan.tensor @weight_decay S_SCALAR_FP32 f32 [1, 1, 1, 1]
memplan.tensor @scaling S_SCALAR_FP32 f32 [1, 1, 1, 1]

// CHECK: graph.computation @train {
// CHECK-NEXT:    graph.bucket FIRST_LAYER_FWD_A on COMP_1 {
// CHECK-NEXT:      graph.compute copy reads(@label_a) writes(@label)
// CHECK-NEXT:    }
// CHECK-NEXT:    graph.bucket DEEP_FWD_BWD on COMP_1 {
// CHECK-NEXT:      graph.compute fc_fwd reads(@x, @fc1.weight, @fc1.bias) writes(@y) {act = "relu"} layer "fc1"
// CHECK-NEXT:      graph.compute dropout_fwd reads(@y) writes(@y, @mask) scalars(@seed, @iteration) {p = 0.25, stream = 123456789} on COMP_2 layer "dropout1"
// CHECK-NEXT:      graph.compute leaky_relu_fwd reads(@y) writes(@y) {slope = 1.0e-05}
// CHECK-NEXT:    }
// CHECK-NEXT:    graph.bucket ZERO_GRAD on UPDATE attributes {note = "kept"} {
// CHECK-NEXT:      graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
// CHECK-NEXT:    }
// CHECK-NEXT:    graph.bucket OPTIMIZER on UPDATE {
// CHECK-NEXT:      graph.range check_nan reads(G_BN_BIAS to G_DEEP_CONV) writes(@has_nan)
// CHECK-NEXT:      graph.range sgd_update reads(G_FC_WEIGHT to G_DEEP_CONV) updates(W_FC_WEIGHT to W_DEEP_CONV) scalars(@lr, @weight_decay, @scaling, @has_nan) {decay = "l2"}
// CHECK-NEXT:      graph.compute count_step updates(@iteration, @applied) scalars(@has_nan) attributes {last}
// CHECK-NEXT:    }
// CHECK-NEXT:    graph.bucket EMA_UPDATE on UPDATE {
// CHECK-NEXT:    }
// CHECK-NEXT:  }
graph.computation @train {
  graph.bucket FIRST_LAYER_FWD_A on COMP_1 {
    graph.compute copy reads(@label_a) writes(@label)
  }
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    graph.compute fc_fwd reads(@x, @fc1.weight, @fc1.bias) writes(@y) {act = "relu"} layer "fc1"
    graph.compute dropout_fwd reads(@y) writes(@y, @mask) scalars(@seed, @iteration) {p = 0.25, stream = 123456789} on COMP_2 layer "dropout1"
    graph.compute leaky_relu_fwd reads(@y) writes(@y) {slope = 0.00001}
  }
  graph.bucket ZERO_GRAD on UPDATE attributes {note = "kept"} {
    graph.range clear writes(G_BN_BIAS to G_DEEP_CONV_FP16)
  }
  graph.bucket OPTIMIZER on UPDATE {
    graph.range check_nan reads(G_BN_BIAS to G_DEEP_CONV) writes(@has_nan)
    graph.range sgd_update reads(G_FC_WEIGHT to G_DEEP_CONV) updates(W_FC_WEIGHT to W_DEEP_CONV) scalars(@lr, @weight_decay, @scaling, @has_nan) {decay = "l2"}
    graph.compute count_step updates(@iteration, @applied) scalars(@has_nan) attributes {last}
  }
  graph.bucket EMA_UPDATE on UPDATE {
  }
}
// CHECK-NEXT:  graph.computation @infer attributes {a = 1 : i64} {
// CHECK-NEXT:  }
graph.computation @infer attributes {a = 1} {}

// CHECK-NEXT:  graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, FIRST_LAYER_FWD_A, DEEP_FWD_BWD, OPTIMIZER] after {{\[\[\], \[\], \[\], \[2\], \[3\], \[0\], \[0, 4\], \[5\]\]}}
// CHECK-NEXT:  graph.step @nothing of @infer columns [4] buckets [] after []
graph.step @train_a of @train columns [0, 2] buckets [ZERO_GRAD, FIRST_LAYER_FWD_A, DEEP_FWD_BWD, OPTIMIZER] after [[], [], [], [2], [3], [0], [0, 4], [5]]
graph.step @nothing of @infer columns [4] buckets [] after []

// CHECK-NEXT:  graph.atlas captures [
// CHECK-NEXT:    @train ZERO_GRAD [0, 0, 0, 0] column 0,
// CHECK-NEXT:    @train DEEP_FWD_BWD [4, 28, 28, 1] column 2
// CHECK-NEXT:  ] table {
// CHECK-NEXT:    train_base [DEEP_FWD_BWD = 1, ZERO_GRAD = 0],
// CHECK-NEXT:    train_last [],
// CHECK-NEXT:    train_lowres [ZERO_GRAD = 0],
// CHECK-NEXT:    train_lowres_last [],
// CHECK-NEXT:    val_base [],
// CHECK-NEXT:    val_last []
// CHECK-NEXT:  }
graph.atlas captures [
  @train ZERO_GRAD [0, 0, 0, 0] column 0,
  @train DEEP_FWD_BWD [4, 28, 28, 1] column 2
] table {
  train_base [ZERO_GRAD = 0, DEEP_FWD_BWD = 1],
  train_lowres [ZERO_GRAD = 0]
}

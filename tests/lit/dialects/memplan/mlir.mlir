// mlir-opt reads the generic text, and what it prints reads back.

// REQUIRES: mlir-opt
// RUN: THROUGH_MLIR

memplan.plan @mlp {mode = regions}
memplan.region POOL at 256 bytes 0
memplan.tensor @w W_FC_WEIGHT f32 [10, 1, 1, 16] init trunc_normal 0.02 layer "fc1" slot 1536
memplan.tensor @x F_FEATURE_FP32 f32 [[2, 1, 1, 1], -, -, -, -, -]
memplan.tensor @u D_RESIDENT_DATA u8 [5, 28, 28, 1]
// CHECK:       memplan.plan @mlp {mode = regions}
// CHECK-NEXT:  memplan.region POOL at 256 bytes 0
// CHECK-NEXT:  memplan.tensor @w W_FC_WEIGHT f32 [10, 1, 1, 16] init trunc_normal 0.02 layer "fc1" slot 1536
// CHECK-NEXT{LITERAL}:  memplan.tensor @x F_FEATURE_FP32 f32 [[2, 1, 1, 1], -, -, -, -, -]
// CHECK-NEXT:  memplan.tensor @u D_RESIDENT_DATA u8 [5, 28, 28, 1]

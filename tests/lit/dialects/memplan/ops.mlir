// Every operation of memplan in its own text and in generic text.

// RUN: ROUNDTRIP
// RUN: GENERIC

// CHECK-LABEL: builtin.module

memplan.spec @train_base {precision = amp_fp16, batch = 200, height = 28, width = 28, channels = 1}
memplan.spec @train_last {precision = amp_fp16, batch = 100, height = 28, width = 28, channels = 1}
memplan.spec @train_lowres {precision = amp_fp16, batch = 200, height = 14, width = 14, channels = 1}
memplan.spec @train_lowres_last {precision = amp_fp16, batch = 100, height = 14, width = 14, channels = 1}
memplan.spec @val_base {precision = amp_fp16, batch = 250, height = 28, width = 28, channels = 1}
memplan.spec @val_last {precision = amp_fp16, batch = 1, height = 28, width = 28, channels = 1} attributes {note = "kept"}
// CHECK-NEXT:  memplan.spec @train_base {precision = amp_fp16, batch = 200, height = 28, width = 28, channels = 1}
// CHECK:       memplan.spec @val_last {precision = amp_fp16, batch = 1, height = 28, width = 28, channels = 1} attributes {note = "kept"}

memplan.plan @mlp {mode = packed, total = 12544}
// CHECK-NEXT:  memplan.plan @mlp {mode = packed, total = 12544}

memplan.region W_FC_BIAS at 0 bytes 512
memplan.region W_FC_WEIGHT at 512 bytes 1536
memplan.region POOL at 2048 bytes 10496
// CHECK-NEXT:  memplan.region W_FC_BIAS at 0 bytes 512
// CHECK-NEXT:  memplan.region W_FC_WEIGHT at 512 bytes 1536
// CHECK-NEXT:  memplan.region POOL at 2048 bytes 10496

// Six equal columns are one shape; zeros need no rule.
memplan.tensor @fc1.bias W_FC_BIAS f32 [1, 1, 1, 10] layer "fc1" slot 512 at 0
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [10, 1, 1, 16] init kaiming_uniform fan 16 layer "fc1" slot 1536 at 512
// CHECK-NEXT:  memplan.tensor @fc1.bias W_FC_BIAS f32 [1, 1, 1, 10] layer "fc1" slot 512 at 0
// CHECK-NEXT:  memplan.tensor @fc1.weight W_FC_WEIGHT f32 [10, 1, 1, 16] init kaiming_uniform fan 16 layer "fc1" slot 1536 at 512

// Columns differ, or are absent.
memplan.tensor @fc1.output F_FEATURE_FP16 f16 [[200, 1, 1, 10], [100, 1, 1, 10], [200, 1, 1, 10], [100, 1, 1, 10], -, -] layer "fc1" slot 6656 at 2048
memplan.tensor @fc1.output.inf F_FEATURE_FP16 f16 [-, -, -, -, [250, 1, 1, 10], [1, 1, 1, 10]] layer "fc1"
// CHECK-NEXT{LITERAL}:  memplan.tensor @fc1.output F_FEATURE_FP16 f16 [[200, 1, 1, 10], [100, 1, 1, 10], [200, 1, 1, 10], [100, 1, 1, 10], -, -] layer "fc1" slot 6656 at 2048
// CHECK-NEXT{LITERAL}:  memplan.tensor @fc1.output.inf F_FEATURE_FP16 f16 [-, -, -, -, [250, 1, 1, 10], [1, 1, 1, 10]] layer "fc1"

// The rules of initialisation, and the element types.
memplan.tensor @a S_SCALAR_FP32 f32 [1, 1, 1, 1] init constant 65536.0
memplan.tensor @b S_SCALAR_FP32 f32 [1, 1, 1, 1] init constant -1.0e-05
memplan.tensor @c W_FC_WEIGHT f32 [1, 1, 1, 1] init kaiming_normal fan 9
memplan.tensor @d W_FC_WEIGHT f32 [1, 1, 1, 1] init trunc_normal 0.02
memplan.tensor @e S_TABLE f32 [1, 1, 1, 99] init table
memplan.tensor @f S_SCALAR_INT32 i32 [1, 1, 1, 1]
memplan.tensor @g S_SCALAR_INT8 i8 [1, 1, 1, 1]
memplan.tensor @h D_RESIDENT_DATA u8 [5, 28, 28, 1]
memplan.tensor @i S_TABLE f32 [1, 1, 1, 4] init values [0.5, -1.0e-05, 3, -0.0]
memplan.tensor @j I_A_BYTES u8 [5, 28, 28, 3]
memplan.tensor @"not a word" S_MASK i8 [5, 28, 28, 1] attributes {why}
// CHECK-NEXT:  memplan.tensor @a S_SCALAR_FP32 f32 [1, 1, 1, 1] init constant 65536.0
// CHECK-NEXT:  memplan.tensor @b S_SCALAR_FP32 f32 [1, 1, 1, 1] init constant -1.0e-05
// CHECK-NEXT:  memplan.tensor @c W_FC_WEIGHT f32 [1, 1, 1, 1] init kaiming_normal fan 9
// CHECK-NEXT:  memplan.tensor @d W_FC_WEIGHT f32 [1, 1, 1, 1] init trunc_normal 0.02
// CHECK-NEXT:  memplan.tensor @e S_TABLE f32 [1, 1, 1, 99] init table
// CHECK-NEXT:  memplan.tensor @f S_SCALAR_INT32 i32 [1, 1, 1, 1]
// CHECK-NEXT:  memplan.tensor @g S_SCALAR_INT8 i8 [1, 1, 1, 1]
// CHECK-NEXT:  memplan.tensor @h D_RESIDENT_DATA u8 [5, 28, 28, 1]
// CHECK-NEXT:  memplan.tensor @i S_TABLE f32 [1, 1, 1, 4] init values [0.5, -1.0e-05, 3.0, -0.0]
// CHECK-NEXT:  memplan.tensor @j I_A_BYTES u8 [5, 28, 28, 3]
// CHECK-NEXT:  memplan.tensor @"not a word" S_MASK i8 [5, 28, 28, 1] attributes {why}

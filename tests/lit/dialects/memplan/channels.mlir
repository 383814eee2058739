// Real channels of padded tensors: text, generic text, and numbers that cannot be.
// RUN: trc-opt %s --split-input-file --verify-diagnostics | filecheck %s
// RUN: trc-opt %s --split-input-file --verify-diagnostics --print-op-generic | filecheck %s --check-prefix=PLAIN

// CHECK: memplan.tensor @w W_FIRST_CONV f32 [8, 7, 7, 4] of 3 init kaiming_uniform fan 147 layer "conv1" slot 6656 at 0
// PLAIN: "memplan.tensor"() <{{{.*}}channels = 3 : i64
memplan.tensor @w W_FIRST_CONV f32 [8, 7, 7, 4] of 3 init kaiming_uniform fan 147 layer "conv1" slot 6656 at 0
// CHECK: memplan.tensor @g G_FIRST_CONV f32 [8, 7, 7, 4] in train of 3
memplan.tensor @g G_FIRST_CONV f32 [8, 7, 7, 4] in train of 3

// -----

// expected-error@+1 {{tensor @w: 4 real channels should be fewer than the shape has, and at least 1}}
memplan.tensor @w W_FIRST_CONV f32 [8, 7, 7, 4] of 4

// -----

// expected-error@+1 {{tensor @w: 0 real channels should be fewer than the shape has, and at least 1}}
memplan.tensor @w W_FIRST_CONV f32 [8, 7, 7, 4] of 0

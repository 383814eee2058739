// What the parser of memplan says about text that it cannot read.

// RUN: trc-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{unknown region W_FC_WEIHGT; did you mean W_FC_WEIGHT?}}
memplan.tensor @x W_FC_WEIHGT f32 [1, 1, 1, 1]

// -----

// expected-error@+1 {{unknown element type f31; did you mean f32? (choose one of f16, bf16, f32, f64, i8, u8, i32, i64)}}
memplan.tensor @x W_FC_WEIGHT f31 [1, 1, 1, 1]

// -----

// expected-error@+1 {{expected one shape of 4 numbers, or 6 shapes (`-` for none), not 3 entries}}
memplan.tensor @x W_FC_WEIGHT f32 [1, 1, 1]

// -----

// expected-error@+1 {{a shape is N, H, W, C, not [1, 2]}}
memplan.tensor @x W_FC_WEIGHT f32 [[1, 2], -, -, -, -, -]

// -----

// expected-error@+1 {{99999999999999999999 does not fit into 64 bits}}
memplan.tensor @x W_FC_WEIGHT f32 [1, 1, 1, 99999999999999999999]

// -----

// expected-error@+1 {{unknown rule kaiming_unifrom; did you mean kaiming_uniform? (choose one of zeros, constant}}
memplan.tensor @x W_FC_WEIGHT f32 [1, 1, 1, 1] init kaiming_unifrom fan 3

// -----

// expected-error@+1 {{is too large for a 64-bit float}}
memplan.tensor @x W_FC_WEIGHT f32 [1, 1, 1, 1] init constant 1.0e999

// -----

// expected-error@+1 {{unknown precision 'fp31'; choose one of fp32, tf32, amp-fp16, amp-bf16, fp64}}
memplan.spec @train_base {precision = fp31, batch = 1, height = 1, width = 1, channels = 1}

// -----

// expected-error@+1 {{Expected 'batch'}}
memplan.spec @train_base {precision = fp32, height = 1, width = 1, channels = 1}

// -----

// expected-error@+1 {{'[' expected}}
memplan.tensor @x S_TABLE f32 [1, 1, 1, 1] init values 1

// -----

// expected-error@+1 {{is too large for a 64-bit float}}
memplan.tensor @x S_TABLE f32 [1, 1, 1, 1] init values [1.0e999]

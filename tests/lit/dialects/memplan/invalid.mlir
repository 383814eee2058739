// Every message of the verifiers of memplan.

// RUN: trc-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{unknown variant @train_bas; did you mean train_base? (the variants are train_base, train_last}}
memplan.spec @train_bas {precision = fp32, batch = 1, height = 1, width = 1, channels = 1}

// -----

// expected-error@+2 {{variant @val_last: batch must be at least 1, not 0}}
// expected-error@+1 {{variant @val_last: channels must be at least 1, not -3}}
memplan.spec @val_last {precision = fp32, batch = 0, height = 1, width = 1, channels = -3}

// -----

// expected-error@+1 {{the module has 2 of the 6 specs; @train_last, @train_lowres, @train_lowres_last, @val_last is missing}}
memplan.spec @train_base {precision = fp32, batch = 1, height = 1, width = 1, channels = 1}
// expected-error@+1 {{variant @val_base has the precision amp_bf16, but @train_base has fp32}}
memplan.spec @val_base {precision = amp_bf16, batch = 1, height = 1, width = 1, channels = 1}

// -----

memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1]
// expected-error@+1 {{symbol @x is already defined at}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1]

// -----

// expected-error@+1 {{tensor @x: f80 is no element type (choose one of f16, bf16, f32, f64, i8, u8, i32, i64)}}
"memplan.tensor"() <{sym_name = "x", region = #memplan.region<W_FC_BIAS>, dtype = f80, shapes = array<i64: 1, 1, 1, 1>}> : () -> ()

// -----

// expected-error@+1 {{layer 'fc1': memplan.tensor: tensor @x: shapes are 4 or 24 numbers, not 3}}
"memplan.tensor"() <{sym_name = "x", region = #memplan.region<W_FC_BIAS>, dtype = f32, shapes = array<i64: 1, 1, 1>, layer = "fc1"}> : () -> ()

// -----

// expected-error@+1 {{tensor @x: no column has a shape; a tensor that no graph touches has no place in the table}}
memplan.tensor @x W_FC_BIAS f32 [-, -, -, -, -, -]

// -----

// expected-error@+1 {{tensor @x: column train_last has the shape [3, 0, 1, 1]; every dimension is at least 1}}
memplan.tensor @x W_FC_BIAS f32 [-, [3, 0, 1, 1], -, -, -, -]

// -----

// expected-error@+2 {{layer 'fc1': memplan.tensor: tensor @x: the slot of 300 bytes is too small; column train_last needs 1024}}
// expected-error@+1 {{tensor @x: the slot of 300 bytes is no multiple of 256}}
memplan.tensor @x F_FEATURE_FP32 f32 [[1, 1, 1, 1], [2, 1, 1, 99], -, -, -, -] layer "fc1" slot 300

// -----

// expected-error@+1 {{tensor @x: has an offset (256) but no slot}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] at 256

// -----

// expected-error@+1 {{tensor @x: the offset 100 is no multiple of 256 from 0 on}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] slot 512 at 100

// -----

// expected-error@+1 {{tensor @x: the offset -256 is no multiple of 256 from 0 on}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] slot 512 at -256

// -----

// expected-error@+1 {{tensor @x: the initial rule kaiming_uniform needs a fan of at least 1, not 0}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] init kaiming_uniform

// -----

// expected-error@+1 {{tensor @x: the initial rule zeros takes no fan (7)}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] init zeros fan 7

// -----

// expected-error@+1 {{tensor @x: the initial rule trunc_normal needs a standard deviation above 0, not -0.5}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] init trunc_normal -0.5

// -----

// expected-error@+1 {{tensor @x: the initial rule values needs values, one an element}}
memplan.tensor @x S_TABLE f32 [1, 1, 1, 1] init values []

// -----

// expected-error@+1 {{tensor @x: column train_base has 3 elements, its initial value 2 numbers}}
memplan.tensor @x S_TABLE f32 [1, 1, 1, 3] init values [1.0, 2.0]

// -----

// expected-error@+1 {{tensor @x: the initial rule values takes no value (2.0)}}
memplan.tensor @x S_TABLE f32 [1, 1, 1, 1] init values [1.0] 2.0

// -----

// expected-error@+1 {{tensor @x: the initial rule table takes no value (3.0)}}
memplan.tensor @x W_FC_BIAS f32 [1, 1, 1, 1] init table 3

// -----

memplan.spec @train_base {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.spec @train_last {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.spec @train_lowres {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.spec @train_lowres_last {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.spec @val_base {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.spec @val_last {precision = fp64, batch = 1, height = 1, width = 1, channels = 1}
memplan.tensor @w W_FC_WEIGHT f64 [1, 1, 1, 1]
// expected-error@+1 {{tensor @x is f32, but region W_FC_WEIGHT holds f64 under fp64}}
memplan.tensor @x W_FC_WEIGHT f32 [1, 1, 1, 1]
// expected-error@+1 {{tensor @y: region A_FC_WEIGHT exists under mixed precision only, not fp64}}
memplan.tensor @y A_FC_WEIGHT f16 [1, 1, 1, 1]

// -----

// expected-error@+2 {{unknown planner mode paked; did you mean packed? (choose one of packed, regions)}}
// expected-error@+1 {{the total of 100 bytes is no multiple of 256 from 0 on}}
memplan.plan @mlp {mode = paked, total = 100}

// -----

memplan.plan @a {mode = packed}
// expected-error@+1 {{second plan of the module; the first is that of @a}}
memplan.plan @b {mode = packed}

// -----

// expected-error@+1 {{there is no arch.model @mpl; did you mean mlp?}}
memplan.plan @mpl {mode = packed}
arch.model @mlp(%input: tensor<?x1x1x4xf32>) {
  %0 = arch.relu %input
  arch.output %0
}

// -----

// expected-error@+3 {{unknown region W_FC_BIS; did you mean W_FC_BIAS?}}
// expected-error@+2 {{region W_FC_BIS: the offset -256 is no multiple of 256 from 0 on}}
// expected-error@+1 {{region W_FC_BIS: the length 100 is no multiple of 256 from 0 on}}
memplan.region W_FC_BIS at -256 bytes 100

// -----

memplan.plan @m {mode = packed, total = 1024}
memplan.region W_FC_BIAS at 0 bytes 512
// expected-error@+1 {{region W_FC_WEIGHT begins at 256, before region W_FC_BIAS ends at 512}}
memplan.region W_FC_WEIGHT at 256 bytes 512
// expected-error@+1 {{region POOL ends at 1280, after the arena's 1024 bytes}}
memplan.region POOL at 768 bytes 512
// expected-error@+1 {{region POOL has two spans}}
memplan.region POOL at 0 bytes 0
// expected-error@+1 {{tensor @w lies at 256 to 768, outside W_FC_BIAS at 0 to 512}}
memplan.tensor @w W_FC_BIAS f32 [1, 1, 1, 1] slot 512 at 256
// expected-error@+1 {{tensor @g has an offset, but G_FC_BIAS has no memplan.region}}
memplan.tensor @g G_FC_BIAS f32 [1, 1, 1, 1] slot 512 at 0

// -----

// expected-error@+1 {{property 'dtype' expected in operation 'memplan.tensor'}}
"memplan.tensor"() <{sym_name = "x", region = #memplan.region<W_FC_BIAS>, shapes = array<i64: 1, 1, 1, 1>}> : () -> ()

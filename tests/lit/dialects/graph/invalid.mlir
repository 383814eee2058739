// Every message of the verifiers of graph.

// RUN: trc-opt %s --split-input-file --verify-diagnostics

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+1 {{layer 'fc1': graph.compute: unknown kind fc_fdw; did you mean fc_fwd?}}
    graph.compute fc_fdw reads(@x) writes(@x) layer "fc1"
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+1 {{kind clear is written as graph.range, not graph.compute}}
    graph.compute clear writes(G_BN_BIAS to G_DEEP_CONV)
    // expected-error@+1 {{kind copy is written as graph.compute, not graph.range}}
    graph.range copy reads(@x) writes(@x)
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+2 {{kind copy reads 1 operands (x), not 2}}
    // expected-error@+1 {{kind copy writes 1 operands (y), not 0}}
    graph.compute copy reads(@x, @x)
    // expected-error@+1 {{layer 'fc1': graph.compute: kind fc_fwd reads 2 to 3 operands (x, weight, bias), not 1}}
    graph.compute fc_fwd reads(@x) writes(@x) {act = "none"} layer "fc1"
    // expected-error@+1 {{kind copy updates 0 operands (nothing), not 1}}
    graph.compute copy reads(@x) updates(@x) writes(@x)
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+1 {{operand x of kind copy is a tensor, not the range G_BN_BIAS to G_DEEP_CONV}}
    graph.compute copy reads(G_BN_BIAS to G_DEEP_CONV) writes(@x)
    // expected-error@+1 {{of kind clear is a range of regions, not @x}}
    graph.range clear writes(@x)
    // expected-error@+1 {{the range G_DEEP_CONV to G_BN_BIAS runs backwards}}
    graph.range clear writes(G_DEEP_CONV to G_BN_BIAS)
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+1 {{kind softmax_ce_bwd takes 1 scalars (scaling), not 2}}
    graph.compute softmax_ce_bwd reads(@x, @x) writes(@x) scalars(@s, @s) {label_smoothing = 0.1}
    // expected-error@+1 {{kind copy takes 0 scalars (nothing), not 1}}
    graph.compute copy reads(@x) writes(@x) scalars(@s)
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]
memplan.tensor @s S_SCALAR_FP32 f32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+1 {{kind leaky_relu_fwd has no parameter slop; did you mean slope? (it takes slope)}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x) {slope = 0.1, slop = 0.1}
    // expected-error@+1 {{kind leaky_relu_fwd needs the parameter slope}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x)
    // expected-error@+1 {{parameter slope of kind leaky_relu_fwd is a float, not 1 : i64}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x) {slope = 1}
    // expected-error@+1 {{parameter slope of kind leaky_relu_fwd is a float, not 1.000000e-01 : f32}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x) {slope = 0.1 : f32}
    // expected-error@+1 {{parameter slope of kind leaky_relu_fwd must be finite, not inf}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x) {slope = 0x7FF0000000000000 : f64}
    // expected-error@+1 {{kind copy has no parameter a (it takes none)}}
    graph.compute copy reads(@x) writes(@x) {a = 1}
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]

// -----

// What changes between steps is no parameter.
graph.computation @train {
  graph.bucket OPTIMIZER on UPDATE {
    // expected-error@+1 {{parameter lr changes between steps: pass a device scalar, as in scalars(@lr)}}
    graph.range sgd_update reads(G_FC_WEIGHT to G_DEEP_CONV) updates(W_FC_WEIGHT to W_DEEP_CONV) scalars(@s, @s, @s, @n) {decay = "l2", lr = 0.1}
    // expected-error@+1 {{parameter step changes between steps: pass a device scalar, as in scalars(@step)}}
    graph.compute leaky_relu_fwd reads(@x) writes(@x) {slope = 0.1, step = 3}
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]
memplan.tensor @s S_SCALAR_FP32 f32 [1, 1, 1, 1]
memplan.tensor @n S_SCALAR_INT32 i32 [1, 1, 1, 1]

// -----

graph.computation @train {
  graph.bucket DEEP_FWD_BWD on COMP_1 {
    // expected-error@+2 {{layer 'fc1': kind fc_fwd: symbol @fc1.wieght is not defined; did you mean fc1.weight?}}
    // expected-error@+1 {{layer 'fc1': kind fc_fwd: @infer is a graph.computation, not a memplan.tensor}}
    graph.compute fc_fwd reads(@x, @fc1.wieght) writes(@infer) {act = "none"} layer "fc1"
    // expected-error@+1 {{kind softmax_ce_bwd: @x in F_FEATURE_FP32 is no device scalar; scalars lie in S_ regions}}
    graph.compute softmax_ce_bwd reads(@x, @x) writes(@x) scalars(@x) {label_smoothing = 0.1}
  }
}
graph.computation @infer {}
memplan.tensor @x F_FEATURE_FP32 f32 [1, 1, 1, 1]
memplan.tensor @fc1.weight W_FC_WEIGHT f32 [1, 1, 1, 1]

// -----

// expected-error@+1 {{computation @train has the bucket ZERO_GRAD twice}}
graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {}
  graph.bucket ZERO_GRAD on UPDATE {}
}

// -----

// expected-error@+1 {{computation @train holds graph.bucket only, not memplan.region}}
graph.computation @train {
  memplan.region POOL at 0 bytes 0
  // expected-error@+1 {{bucket ZERO_GRAD holds graph.compute and graph.range only, not memplan.region}}
  graph.bucket ZERO_GRAD on UPDATE {
    memplan.region POOL at 0 bytes 0
  }
}

// -----

// expected-error@+1 {{unknown variant @train_bass; did you mean train_base?}}
graph.variant @train_bass uses @train
graph.computation @train {}

// -----

graph.computation @train {}
memplan.tensor @val_base F_FEATURE_FP32 f32 [1, 1, 1, 1]
// expected-error@+2 {{symbol @train_base is not defined}}
// expected-error@+1 {{only some variants have a computation; @train_last, @train_lowres, @train_lowres_last, @val_last has none}}
graph.variant @train_base uses @train
// expected-error@+2 {{symbol @train_base is not defined}}
// expected-error@+1 {{variant @train_base is given two computations}}
graph.variant @train_base uses @train
// expected-error@+2 {{@val_base is a memplan.tensor, not a memplan.spec}}
// expected-error@+1 {{symbol @trian is not defined; did you mean train?}}
graph.variant @val_base uses @trian

// -----

// expected-error@+2 {{step @a: columns are some of 0 to 5 in rising order, not [2, 0]}}
// expected-error@+1 {{step @a: bucket ZERO_GRAD is listed twice}}
graph.step @a of @train columns [2, 0] buckets [ZERO_GRAD, ZERO_GRAD] after []
// expected-error@+1 {{step @b: columns are some of 0 to 5 in rising order, not []}}
graph.step @b of @train columns [] buckets [] after []
// expected-error@+1 {{step @c: columns are some of 0 to 5 in rising order, not [6]}}
graph.step @c of @train columns [6] buckets [] after []
// expected-error@+3 {{step @d: node 0 is after 0, which does not stand before it}}
// expected-error@+2 {{step @d: node 1 is after 2, which does not stand before it}}
// expected-error@+1 {{step @d: the positions before node 2 must rise, not [1, 0]}}
graph.step @d of @train columns [0] buckets [] after [[0], [2], [1, 0]]
// expected-error@+1 {{step @e: starts must rise from 0 to 1, the number of edges}}
"graph.step"() <{sym_name = "e", computation = @train, columns = array<i32: 0>, buckets = [], starts = array<i32: 0, 3>, after = array<i32: 0>}> : () -> ()
graph.computation @train {}

// -----

// expected-error@+1 {{step @a: symbol @trian is not defined; did you mean train?}}
graph.step @a of @trian columns [0] buckets [] after []
// expected-error@+1 {{step @b: computation @train has no bucket OPTIMIZER}}
graph.step @b of @train columns [0] buckets [OPTIMIZER] after []
// expected-error@+1 {{step @c orders 1 nodes, but its buckets hold 2}}
graph.step @c of @train columns [0, 1] buckets [ZERO_GRAD] after [[]]
graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {
    graph.range clear writes(G_BN_BIAS to G_BN_BIAS)
    // expected-error@+1 {{kind copy: @x has no shape in train_last, where step @c runs}}
    graph.compute copy reads(@x) writes(@x)
  }
}
memplan.tensor @x F_FEATURE_FP32 f32 [[1, 1, 1, 1], -, -, -, -, -]

// -----

memplan.spec @train_base {precision = fp32, batch = 4, height = 2, width = 2, channels = 1}
memplan.spec @train_last {precision = fp32, batch = 2, height = 2, width = 2, channels = 1}
memplan.spec @train_lowres {precision = fp32, batch = 4, height = 1, width = 1, channels = 1}
memplan.spec @train_lowres_last {precision = fp32, batch = 2, height = 1, width = 1, channels = 1}
memplan.spec @val_base {precision = fp32, batch = 5, height = 2, width = 2, channels = 1}
memplan.spec @val_last {precision = fp32, batch = 1, height = 2, width = 2, channels = 1}
graph.variant @train_base uses @train
graph.variant @train_last uses @train
graph.variant @train_lowres uses @train
graph.variant @train_lowres_last uses @train
graph.variant @val_base uses @infer
graph.variant @val_last uses @infer
graph.computation @train {
  graph.bucket ACCUM_METRICS on UPDATE {}
  graph.bucket ZERO_GRAD on UPDATE {}
}
graph.computation @infer {
  graph.bucket ACCUM_METRICS on UPDATE {}
}
// expected-error@+1 {{step @a runs @train in column 4, but variant @val_base uses @infer}}
graph.step @a of @train columns [0, 4] buckets [ACCUM_METRICS] after []
// expected-error@+6 {{train_base ZERO_GRAD = 2 captures @trian, but the variant uses @train}}
// expected-error@+5 {{capture 1 (train OPTIMIZER): computation @train has no bucket OPTIMIZER}}
// expected-error@+4 {{capture 2 (trian ZERO_GRAD): symbol @trian is not defined; did you mean train?}}
// expected-error@+3 {{train_last ACCUM_METRICS = 0 is captured at [4, 2, 2, 1], but the variant has [2, 2, 2, 1]}}
// expected-error@+2 {{val_base ACCUM_METRICS = 0 captures @train, but the variant uses @infer}}
// expected-error@+1 {{val_base ACCUM_METRICS = 0 is captured at [4, 2, 2, 1], but the variant has [5, 2, 2, 1]}}
graph.atlas captures [
  @train ACCUM_METRICS [4, 2, 2, 1] column 0,
  @train OPTIMIZER [0, 0, 0, 0] column 0,
  @trian ZERO_GRAD [0, 0, 0, 0] column 1
] table {
  train_base [ACCUM_METRICS = 0, OPTIMIZER = 1, ZERO_GRAD = 2],
  train_last [ACCUM_METRICS = 0],
  val_base [ACCUM_METRICS = 0]
}
// expected-error@+1 {{second atlas of the module}}
graph.atlas captures [] table {}

// -----

// expected-error@+7 {{capture 1 (train ZERO_GRAD) is the same as capture 0}}
// expected-error@+6 {{capture 2 (train OPTIMIZER): column 6 is none of 0 to 5}}
// expected-error@+5 {{capture 2 (train OPTIMIZER): the shape [4, 0, 1, 1] is neither all zeros nor all above zero}}
// expected-error@+4 {{train_base OPTIMIZER = 0, which captures ZERO_GRAD}}
// expected-error@+3 {{train_last ZERO_GRAD = 9: there are 3 captures}}
// expected-error@+2 {{capture 1 (train ZERO_GRAD) is used by no variant}}
// expected-error@+1 {{capture 2 (train OPTIMIZER) is used by no variant}}
graph.atlas captures [
  @train ZERO_GRAD [0, 0, 0, 0] column 0,
  @train ZERO_GRAD [0, 0, 0, 0] column 1,
  @train OPTIMIZER [4, 0, 1, 1] column 6
] table {
  train_base [OPTIMIZER = 0],
  train_last [ZERO_GRAD = 9]
}
graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {}
  graph.bucket OPTIMIZER on UPDATE {}
}

// -----

// expected-error@+1 {{the atlas is a table of 6 by 33, not of 2 numbers}}
"graph.atlas"() <{computations = [], captures = array<i32>, table = array<i32: 1, 2>}> : () -> ()

// -----

// expected-error@+1 {{a capture is 7 numbers; 3 are no multiple of that}}
"graph.atlas"() <{computations = [], captures = array<i32: 1, 2, 3>, table = array<i32: -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1>}> : () -> ()

// -----

// expected-error@+1 {{capture 0 refers to computation 0 and graph id 40, which do not exist}}
"graph.atlas"() <{computations = [], captures = array<i32: 0, 40, 0, 0, 0, 0, 0>, table = array<i32: -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1>}> : () -> ()

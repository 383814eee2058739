// The six variants, and a step of many nodes, whose edges print over several lines.

// RUN: ROUNDTRIP
// RUN: GENERIC

memplan.spec @train_base {precision = fp32, batch = 4, height = 2, width = 2, channels = 1}
memplan.spec @train_last {precision = fp32, batch = 2, height = 2, width = 2, channels = 1}
memplan.spec @train_lowres {precision = fp32, batch = 4, height = 1, width = 1, channels = 1}
memplan.spec @train_lowres_last {precision = fp32, batch = 2, height = 1, width = 1, channels = 1}
memplan.spec @val_base {precision = fp32, batch = 5, height = 2, width = 2, channels = 1}
memplan.spec @val_last {precision = fp32, batch = 1, height = 2, width = 2, channels = 1}

graph.computation @train {
  graph.bucket ZERO_GRAD on UPDATE {
    graph.range clear writes(G_BN_BIAS to G_BN_BIAS)
    graph.range clear writes(G_BN_WEIGHT to G_BN_WEIGHT)
    graph.range clear writes(G_FC_BIAS to G_FC_BIAS)
    graph.range clear writes(G_FC_WEIGHT to G_FC_WEIGHT)
    graph.range clear writes(G_FIRST_CONV to G_FIRST_CONV)
    graph.range clear writes(G_DEEP_CONV to G_DEEP_CONV)
    graph.range clear writes(M_BN_BIAS to M_BN_BIAS)
    graph.range clear writes(M_BN_WEIGHT to M_BN_WEIGHT)
    graph.range clear writes(M_FC_BIAS to M_FC_BIAS)
    graph.range clear writes(M_FC_WEIGHT to M_FC_WEIGHT)
    graph.range clear writes(M_FIRST_CONV to M_FIRST_CONV)
    graph.range clear writes(M_DEEP_CONV to M_DEEP_CONV)
    graph.range clear writes(V_BN_BIAS to V_BN_BIAS)
    graph.range clear writes(V_BN_WEIGHT to V_BN_WEIGHT)
    graph.range clear writes(V_FC_BIAS to V_FC_BIAS)
    graph.range clear writes(V_FC_WEIGHT to V_FC_WEIGHT)
    graph.range clear writes(V_FIRST_CONV to V_FIRST_CONV)
    graph.range clear writes(V_DEEP_CONV to V_DEEP_CONV)
  }
}
graph.computation @infer {}
// CHECK:       graph.variant @train_base uses @train
// CHECK-NEXT:  graph.variant @train_last uses @train
// CHECK-NEXT:  graph.variant @train_lowres uses @train
// CHECK-NEXT:  graph.variant @train_lowres_last uses @train
// CHECK-NEXT:  graph.variant @val_base uses @infer
// CHECK-NEXT:  graph.variant @val_last uses @infer attributes {note = "kept"}
graph.variant @train_base uses @train
graph.variant @train_last uses @train
graph.variant @train_lowres uses @train
graph.variant @train_lowres_last uses @train
graph.variant @val_base uses @infer
graph.variant @val_last uses @infer attributes {note = "kept"}
// CHECK-NEXT:  graph.step @zero of @train columns [0, 1, 2, 3] buckets [ZERO_GRAD] after [
// CHECK-NEXT:    [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [],
// CHECK-NEXT{LITERAL}:    [], [0, 16]
// CHECK-NEXT:  ] attributes {note}
graph.step @zero of @train columns [0, 1, 2, 3] buckets [ZERO_GRAD] after [[], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [], [0, 16]] attributes {note}

// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=7 train-samples=13},plan-derive-all-shapes{rates=30 weight-decay=0.1 beta1=0.8 beta2=0.99 eps=1e-6}' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd}' | filecheck %s --check-prefix=SGD
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd momentum=0.9 nesterov=true decoupled=true weight-decay=0.1}' | filecheck %s --check-prefix=MOMENTUM
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=amp-fp16},plan-derive-all-shapes' | filecheck %s --check-prefix=AMP
// RUN: trc-opt %s -p 'plan-create-compile-specs{precision=fp64},plan-derive-all-shapes' | filecheck %s --check-prefix=DOUBLE
// RUN: not trc-opt %s -p 'plan-derive-all-shapes' --no-reproducer 2>&1 | filecheck %s --check-prefix=SPECS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-derive-all-shapes' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=lion}' --no-reproducer 2>&1 | filecheck %s --check-prefix=NAME
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{momentum=0.9}' --no-reproducer 2>&1 | filecheck %s --check-prefix=OTHER
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{optimizer=sgd nesterov=true}' --no-reproducer 2>&1 | filecheck %s --check-prefix=NESTEROV
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{eps=small}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORD
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{rates=0}' --no-reproducer 2>&1 | filecheck %s --check-prefix=RATES
// RUN: not trc-opt %s -p 'plan-create-compile-specs{channels=3},plan-derive-all-shapes' --no-reproducer 2>&1 | filecheck %s --check-prefix=CHANNELS
// RUN: not trc-opt %s -p 'plan-create-compile-specs{val-height=4},plan-derive-all-shapes' --no-reproducer 2>&1 | filecheck %s --check-prefix=COLUMNS

// CHECK: memplan.tensor @label_a I_A_LABEL i32 {{\[\[}}5, 1, 1, 1], [3, 1, 1, 1], [5, 1, 1, 1], [3, 1, 1, 1], [7, 1, 1, 1], [7, 1, 1, 1]]
// CHECK: memplan.tensor @data_a I_A_DATA f32 {{\[\[}}5, 2, 2, 1], [3, 2, 2, 1]
// CHECK: memplan.tensor @beta1 S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.8
// CHECK: memplan.tensor @beta2 S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.99
// CHECK: memplan.tensor @eps S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 1.0e-06
// CHECK: memplan.tensor @weight_decay S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.1
// CHECK: memplan.tensor @lr_table S_TABLE f32 [1, 1, 1, 30] in train init table
// CHECK-NEXT: memplan.tensor @flatten1.output F_FEATURE_FP32 f32
// CHECK-NEXT: memplan.tensor @flatten1.output.inf F_FEATURE_FP32 f32 [7, 1, 1, 4] in val layer "flatten1"
// CHECK-NEXT: memplan.tensor @fc1.weight W_FC_WEIGHT f32 [6, 1, 1, 4] init kaiming_uniform fan 4 layer "fc1"
// CHECK-NEXT: memplan.tensor @fc1.weight.grad G_FC_WEIGHT f32 [6, 1, 1, 4] in train layer "fc1"
// CHECK-NEXT: memplan.tensor @fc1.weight.m M_FC_WEIGHT
// CHECK-NEXT: memplan.tensor @fc1.weight.v V_FC_WEIGHT
// CHECK-NEXT: memplan.tensor @fc1.bias W_FC_BIAS f32 [1, 1, 1, 6] layer "fc1"
// CHECK-NEXT: memplan.tensor @fc1.bias.grad G_FC_BIAS
// CHECK-NEXT: memplan.tensor @fc1.bias.m M_FC_BIAS
// CHECK-NEXT: memplan.tensor @fc1.bias.v V_FC_BIAS
// CHECK-NEXT: memplan.tensor @fc1.output.grad F_GRAD_SLOT_FP32
// CHECK-NEXT: memplan.tensor @relu1.output F_FEATURE_FP32
// CHECK-NEXT: memplan.tensor @relu1.output.inf F_FEATURE_FP32
// CHECK-NOT: fc2.bias
// CHECK: memplan.tensor @softmax_ce.probs T_TEMP_FP32

// SGD-NOT: beta1
// SGD-NOT: .weight.m
// MOMENTUM: memplan.tensor @beta1 S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 0.9
// MOMENTUM: memplan.tensor @fc1.weight.m M_FC_WEIGHT
// MOMENTUM-NOT: .weight.v

// AMP: memplan.tensor @data_a I_A_DATA f16
// AMP: memplan.tensor @scaling S_SCALAR_FP32 f32 [1, 1, 1, 1] in train init constant 8192.0
// AMP: memplan.tensor @fc1.weight W_FC_WEIGHT f32
// AMP-NEXT: memplan.tensor @fc1.weight.half A_FC_WEIGHT f16
// AMP: memplan.tensor @relu1.output F_FEATURE_FP16 f16
// DOUBLE: memplan.tensor @fc1.weight W_FC_WEIGHT f64

// SPECS: the module has no memplan.spec: run plan-create-compile-specs first
// TWICE: plan-derive-all-shapes has already run on this module
// NAME: unknown optimizer 'lion'; choose one of sgd, adam, adamw
// OTHER: option momentum belongs to sgd, not to adamw
// NESTEROV: nesterov needs momentum > 0
// WORD: option eps must be a number, not 'small'
// RATES: option rates must be at least 1, not 0
// CHANNELS: @train_base has 3 channels, the network's input 1
// COLUMNS: layer 'fc1': its weight is [6, 1, 1, 4] in train_base but [6, 1, 1, 8] in val_base: a parameter has one shape

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

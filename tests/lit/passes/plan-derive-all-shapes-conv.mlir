// The tensors of a convolutional network: only those that some node reads.

// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=2 precision=amp-fp16 channels=3},plan-select-kernels,plan-derive-all-shapes{optimizer=sgd}' | trc-opt | filecheck %s --check-prefix=AMP
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=2},plan-select-kernels,plan-derive-all-shapes{optimizer=sgd}' | filecheck %s --check-prefix=SINGLE
// RUN: not trc-opt %s -p 'plan-create-compile-specs{batch=2 channels=3},plan-derive-all-shapes' --no-reproducer 2>&1 | filecheck %s --check-prefix=REAL

// AMP: memplan.tensor @data_a I_A_DATA f16 [2, 4, 4, 4] of 3
// AMP: memplan.tensor @conv1.weight W_FIRST_CONV f32 [8, 3, 3, 4] of 3 init kaiming_uniform fan 27 layer "conv1"
// AMP-NEXT: memplan.tensor @conv1.weight.half A_FIRST_CONV f16 [8, 3, 3, 4] of 3 layer "conv1"
// AMP-NEXT: memplan.tensor @conv1.weight.grad G_FIRST_CONV f32 [8, 3, 3, 4] in train of 3 layer "conv1"
// AMP-NEXT: memplan.tensor @conv1.weight.grad_half G_FIRST_CONV_FP16 f16 [8, 3, 3, 4] in train of 3 layer "conv1"
// AMP-NEXT: memplan.tensor @conv1.output F_FEATURE_FP16 f16 [2, 4, 4, 8] in train layer "conv1"
// AMP-NEXT: memplan.tensor @conv1.output.inf F_FEATURE_FP16
// AMP-NEXT: memplan.tensor @conv1.output.grad F_GRAD_SLOT_FP16
// AMP-NEXT: memplan.tensor @bn1.weight W_BN_WEIGHT f32 [1, 1, 1, 8]
// AMP: memplan.tensor @bn1.sum T_TEMP_FP32 f32 [1, 1, 1, 8] in train
// AMP: memplan.tensor @bn1.scale T_TEMP_FP16 f16 [1, 1, 1, 8] in train
// AMP: memplan.tensor @bn1.output.grad F_GRAD_SLOT_FP16
// AMP-NEXT: memplan.tensor @relu1.output F_FEATURE_FP16 f16 [2, 4, 4, 8] in train layer "relu1"
// AMP-NEXT: memplan.tensor @relu1.output.inf F_FEATURE_FP16
// AMP-NEXT: memplan.tensor @max_pool1.output F_FEATURE_FP16
// AMP-NEXT: memplan.tensor @max_pool1.output.inf F_FEATURE_FP16
// AMP-NEXT: memplan.tensor @max_pool1.mask S_MASK i8 [2, 2, 2, 8] in train

// SINGLE: memplan.tensor @data_a I_A_DATA f32 [2, 4, 4, 4]{{$}}
// SINGLE: memplan.tensor @conv1.weight W_FIRST_CONV f32 [8, 3, 3, 4] init kaiming_uniform fan 36 layer "conv1"
// SINGLE-NEXT: memplan.tensor @conv1.weight.grad G_FIRST_CONV
// SINGLE: memplan.tensor @bn1.scale T_TEMP_FP32 f32

// REAL: @train_base has 3 channels, the network's input 4

arch.model @net(%x: tensor<?x4x4x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1} layer "conv1" first : tensor<?x4x4x8xf32>
  %1 = arch.bn2d %0 layer "bn1" : tensor<?x4x4x8xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x4x4x8xf32>
  %3 = arch.max_pool %2 {kernel = 2, stride = 2} layer "max_pool1" : tensor<?x2x2x8xf32>
  %4 = arch.fc %3 {out_features = 3} layer "fc1" : tensor<?x1x1x3xf32>
  %5 = arch.softmax_ce %4 {num_classes = 3} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %5
}

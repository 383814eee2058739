// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=70},plan-derive-all-shapes,plan-compute-max-slot-bytes' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 precision=amp-fp16},plan-derive-all-shapes,plan-compute-max-slot-bytes' | filecheck %s --check-prefix=AMP
// RUN: not trc-opt %s -p 'plan-compute-max-slot-bytes' --no-reproducer 2>&1 | filecheck %s --check-prefix=TENSORS

// 280 labels would fit in 1,120 bytes; a slot of four-byte elements is twice the one of halves.
// CHECK: memplan.tensor @label_a I_A_LABEL {{.*}} slot 512
// CHECK: memplan.tensor @data_a I_A_DATA {{.*}} slot 1536
// CHECK: memplan.tensor @loss R_RESULT f32 [1, 1, 1, 1] slot 512
// AMP: memplan.tensor @fc1.weight W_FC_WEIGHT {{.*}} slot 512
// AMP: memplan.tensor @fc1.weight.half A_FC_WEIGHT {{.*}} slot 256
// AMP: memplan.tensor @relu1.output F_FEATURE_FP16 {{.*}} slot 256
// TENSORS: the module has no memplan.tensor: run plan-derive-all-shapes first

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

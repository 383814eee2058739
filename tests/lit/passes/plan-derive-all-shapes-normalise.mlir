// Images that come as bytes: a buffer more for each input, and the tables to normalise with.

// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=7 train-samples=13},plan-derive-all-shapes{mean=0.5,0.25,0 std=0.5,0.25,1}' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=7 train-samples=13},plan-derive-all-shapes{mean="0.5",0.25,0.0 std=5e-1,0.25,1.0}' | trc-opt | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5},plan-derive-all-shapes' | filecheck %s --check-prefix=PLAIN
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=0.5,0.5,0.5}' --no-reproducer 2>&1 | filecheck %s --check-prefix=HALF
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=0.5 std=0.5}' --no-reproducer 2>&1 | filecheck %s --check-prefix=CHANNELS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=0.5,0.5,0.5 std=1,0,1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=ZERO
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=0.5,0.5,0.5 std=1,1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=LENGTHS
// RUN: not trc-opt %s -p 'plan-create-compile-specs{precision="amp-fp16"},plan-derive-all-shapes{mean=0,0,0 std=1,1e-6,1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=LARGE
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes{mean=grey std=1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORD

// CHECK: memplan.tensor @data_a I_A_DATA f32 {{\[\[}}5, 2, 2, 3], [3, 2, 2, 3]
// CHECK: memplan.tensor @lr_table S_TABLE f32 [1, 1, 1, 1] in train init table
// CHECK-NEXT: memplan.tensor @input_scale S_TABLE f32 [1, 1, 1, 3] init values [0.00784313725490196, 0.01568627450980392, 0.00392156862745098]
// CHECK-NEXT: memplan.tensor @input_shift S_TABLE f32 [1, 1, 1, 3] init values [-1.0, -1.0, -0.0]
// CHECK-NEXT: memplan.tensor @bytes_a I_A_BYTES u8 {{\[\[}}5, 2, 2, 3], [3, 2, 2, 3], [5, 2, 2, 3], [3, 2, 2, 3], [7, 2, 2, 3], [7, 2, 2, 3]]
// CHECK-NEXT: memplan.tensor @bytes_b I_B_BYTES u8

// PLAIN-NOT: BYTES
// PLAIN-NOT: input_scale

// HALF: error: option mean needs the option std: images are normalised with both
// CHANNELS: error: the images have 3 channels, options mean and std 1
// ZERO: error: Normalise: std must be above 0 in each channel, not (1.0, 0.0, 1.0)
// LENGTHS: error: Normalise: mean has 3 channels, std has 2
// LARGE: error: normalise makes pixels of up to 1e+06, beyond 65504, the largest number of amp-fp16: take a larger std, or amp-bf16
// WORD: error: option mean of pass plan-derive-all-shapes is numbers between commas, not 'grey'

arch.model @net(%x: tensor<?x2x2x3xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x12xf32>
  %1 = arch.fc %0 {out_features = 4} layer "fc1" : tensor<?x1x1x4xf32>
  %2 = arch.softmax_ce %1 {num_classes = 4} layer "softmax_ce" : tensor<?x1x1x4xf32>
  arch.output %2
}

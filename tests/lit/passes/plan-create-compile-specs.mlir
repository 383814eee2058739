// RUN: trc-opt %s -p 'plan-create-compile-specs' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 val-batch=7 train-samples=13 val-samples=15}' | filecheck %s --check-prefix=LAST
// RUN: trc-opt %s -p 'plan-create-compile-specs{batch=5 train-samples=13 world-size=2}' | filecheck %s --check-prefix=RANKS
// RUN: trc-opt %s -p 'plan-create-compile-specs{height=4 width=6 end-height=8 end-width=10 val-height=12 val-width=14 channels=1 precision=amp-fp16}' | filecheck %s --check-prefix=SIZES
// RUN: not trc-opt %s -p 'plan-create-compile-specs{batch=0 val-batch=-1}' --no-reproducer 2>&1 | filecheck %s --check-prefix=BATCH
// RUN: not trc-opt %s -p 'plan-create-compile-specs{world-size=0}' --no-reproducer 2>&1 | filecheck %s --check-prefix=WORLD
// RUN: not trc-opt %s -p 'plan-create-compile-specs{height=-4}' --no-reproducer 2>&1 | filecheck %s --check-prefix=HEIGHT
// RUN: not trc-opt %s -p 'plan-create-compile-specs{precision=fp12}' --no-reproducer 2>&1 | filecheck %s --check-prefix=PRECISION
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-create-compile-specs' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: echo 'builtin.module {}' | not trc-opt -p plan-create-compile-specs --no-reproducer 2>&1 | filecheck %s --check-prefix=MODEL

// Full batches where the number of samples is unknown; sizes are the model's.
// CHECK: memplan.spec @train_base {precision = fp32, batch = 200, height = 2, width = 2, channels = 1}
// CHECK-NEXT: memplan.spec @train_last {precision = fp32, batch = 200,
// CHECK-NEXT: memplan.spec @train_lowres {precision = fp32, batch = 200,
// CHECK-NEXT: memplan.spec @train_lowres_last {precision = fp32, batch = 200,
// CHECK-NEXT: memplan.spec @val_base {precision = fp32, batch = 200,
// CHECK-NEXT: memplan.spec @val_last {precision = fp32, batch = 200,

// LAST: memplan.spec @train_base {precision = fp32, batch = 5,
// LAST-NEXT: memplan.spec @train_last {precision = fp32, batch = 3,
// LAST-NEXT: memplan.spec @train_lowres {precision = fp32, batch = 5,
// LAST-NEXT: memplan.spec @train_lowres_last {precision = fp32, batch = 3,
// LAST-NEXT: memplan.spec @val_base {precision = fp32, batch = 7,
// LAST-NEXT: memplan.spec @val_last {precision = fp32, batch = 1,

// A rank has 7 of the 13 samples.
// RANKS: memplan.spec @train_last {precision = fp32, batch = 2,

// SIZES: memplan.spec @train_base {precision = amp_fp16, batch = 200, height = 4, width = 6, channels = 1}
// SIZES: memplan.spec @train_lowres {precision = amp_fp16, batch = 200, height = 8, width = 10, channels = 1}
// SIZES: memplan.spec @val_base {precision = amp_fp16, batch = 200, height = 12, width = 14, channels = 1}

// BATCH: option batch must be at least 1, not 0; option val-batch must not be negative, not -1
// WORLD: option world-size must be at least 1, not 0
// HEIGHT: option height must not be negative, not -4
// PRECISION: unknown precision 'fp12'; choose one of fp32, tf32, amp-fp16, amp-bf16, fp64
// TWICE: plan-create-compile-specs has already run on this module
// MODEL: the module has no arch.model

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans' | filecheck %s
// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans{mode=regions}' | filecheck %s --check-prefix=REGIONS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans{mode=dense}' --no-reproducer 2>&1 | filecheck %s --check-prefix=MODE
// RUN: not trc-opt %s -p 'plan-create-memory-plans' --no-reproducer 2>&1 | filecheck %s --check-prefix=TENSORS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-create-memory-plans' --no-reproducer 2>&1 | filecheck %s --check-prefix=SLOT
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,plan-create-memory-plans' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE

// Packed: state has offsets, transient tensors get theirs later, and so does the total.
// CHECK: memplan.plan @net {mode = packed}
// CHECK-NEXT: memplan.region W_FC_BIAS at 0 bytes 512
// CHECK-NEXT: memplan.region W_FC_WEIGHT at 512 bytes 1024
// CHECK-NEXT: memplan.region G_FC_BIAS at 1536 bytes 512
// CHECK-NOT: memplan.region F_FEATURE_FP32
// CHECK: memplan.tensor @fc1.weight {{.*}} slot 512 at 512
// CHECK: memplan.tensor @fc1.bias {{.*}} slot 512 at 0
// CHECK: memplan.tensor @relu1.output F_FEATURE_FP32 {{.*}} slot 5120{{$}}
// CHECK: memplan.tensor @fc2.weight {{.*}} slot 512 at 1024

// REGIONS: memplan.plan @net {mode = regions, total = {{[0-9]+}}}
// REGIONS: memplan.region F_FEATURE_FP32 at
// REGIONS-NEXT: memplan.region F_GRAD_SLOT_FP32 at
// REGIONS: memplan.tensor @relu1.output F_FEATURE_FP32 {{.*}} slot 5120 at {{[0-9]+}}

// MODE: unknown planner mode 'dense'; choose one of packed, regions
// TENSORS: the module has no memplan.tensor: run plan-derive-all-shapes first
// SLOT: layer 'fc1': tensor @fc1.bias has no slot: run plan-compute-max-slot-bytes first
// TWICE: plan-create-memory-plans has already run on this module

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

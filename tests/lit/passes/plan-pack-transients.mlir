// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients' | filecheck %s
// RUN: not trc-opt %s -p 'plan-pack-transients' --no-reproducer 2>&1 | filecheck %s --check-prefix=PLAN
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,plan-pack-transients' --no-reproducer 2>&1 | filecheck %s --check-prefix=STEPS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients,plan-pack-transients' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans{mode=regions},graph-build-computation,graph-share-or-clone,graph-schedule-steps,plan-pack-transients' --no-reproducer 2>&1 | filecheck %s --check-prefix=MODE

// tanh's result takes the place of its input, which nobody else reads.
// CHECK: memplan.plan @net {mode = packed, total = {{[0-9]+}}}
// CHECK: memplan.region S_TABLE at {{[0-9]+}} bytes 512
// CHECK-NEXT: memplan.region POOL at {{[0-9]+}} bytes {{[0-9]+}}
// CHECK: memplan.tensor @fc1.output F_FEATURE_FP32 {{.*}} slot 5120 at [[PLACE:[0-9]+]]
// CHECK: memplan.tensor @tanh1.output F_FEATURE_FP32 {{.*}} slot 5120 at [[PLACE]]
// PLAN: the module has no memplan.plan: run plan-create-memory-plans first
// STEPS: the module has no graph.step: run graph-schedule-steps first
// TWICE: the plan has a total already: plan-pack-transients has run
// MODE: the plan has mode regions: only a packed plan has transients to pack

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.tanh %1 layer "tanh1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

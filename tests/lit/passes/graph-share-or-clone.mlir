// RUN: trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone' | filecheck %s
// RUN: not trc-opt %s -p 'graph-share-or-clone' --no-reproducer 2>&1 | filecheck %s --check-prefix=GRAPHS
// RUN: not trc-opt %s -p 'plan-create-compile-specs,plan-derive-all-shapes,plan-compute-max-slot-bytes,plan-create-memory-plans,graph-build-computation,graph-share-or-clone,graph-share-or-clone' --no-reproducer 2>&1 | filecheck %s --check-prefix=TWICE

// CHECK: graph.variant @train_base uses @train
// CHECK-NEXT: graph.variant @train_last uses @train
// CHECK-NEXT: graph.variant @train_lowres uses @train
// CHECK-NEXT: graph.variant @train_lowres_last uses @train
// CHECK-NEXT: graph.variant @val_base uses @infer
// CHECK-NEXT: graph.variant @val_last uses @infer
// GRAPHS: the module has no graph.computation: run graph-build-computation first
// TWICE: graph-share-or-clone has already run on this module

arch.model @net(%x: tensor<?x2x2x1xf32>) {
  %0 = arch.flatten %x layer "flatten1" first : tensor<?x1x1x4xf32>
  %1 = arch.fc %0 {out_features = 6} layer "fc1" : tensor<?x1x1x6xf32>
  %2 = arch.relu %1 layer "relu1" : tensor<?x1x1x6xf32>
  %3 = arch.fc %2 {out_features = 3, bias = false} layer "fc2" : tensor<?x1x1x3xf32>
  %4 = arch.softmax_ce %3 {num_classes = 3, label_smoothing = 0.1} layer "softmax_ce" : tensor<?x1x1x3xf32>
  arch.output %4
}

// RUN: trc-opt %s -p 'arch-normalize-softmax-ce{num-classes=10}' | filecheck %s
// RUN: trc-opt %s -p 'arch-normalize-softmax-ce{num-classes=10 label-smoothing=0.1}' | filecheck %s --check-prefix=SMOOTH

// CHECK-LABEL: arch.model @none
// CHECK: %[[R:.*]] = arch.relu
// CHECK-NEXT: %[[L:.*]] = arch.softmax_ce %[[R]] {num_classes = 10} layer "softmax_ce"
// CHECK-NEXT: arch.output %[[L]]
// SMOOTH: arch.softmax_ce %{{.*}} {num_classes = 10, label_smoothing = 0.1} layer "softmax_ce"
arch.model @none(%x: tensor<?x1x1x10xf32>) {
  %0 = arch.relu %x
  arch.output %0
}

// Losses in the middle change nothing and go; what the last one says stays.
// CHECK-LABEL: arch.model @many
// CHECK-NEXT: %[[R:.*]] = arch.relu %x
// CHECK-NEXT: %[[L:.*]] = arch.softmax_ce %[[R]] {num_classes = 10} layer "softmax_ce"
// CHECK-NEXT: arch.output %[[L]]
// SMOOTH-LABEL: arch.model @many
// SMOOTH: arch.softmax_ce %{{.*}} {num_classes = 10, label_smoothing = 0.1}
arch.model @many(%x: tensor<?x1x1x10xf32>) {
  %0 = arch.softmax_ce %x {num_classes = 10} layer "a"
  %1 = arch.relu %0
  %2 = arch.softmax_ce %1 {num_classes = 10} layer "b"
  arch.output %2
}

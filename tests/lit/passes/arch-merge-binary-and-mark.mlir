// RUN: trc-opt %s -p arch-merge-binary-and-mark | filecheck %s
// RUN: trc-opt %s -p 'arch-merge-binary-and-mark{fuse=true}' | filecheck %s
// RUN: trc-opt %s -p 'arch-merge-binary-and-mark{fuse=false}' | filecheck %s --check-prefix=MARK

// CHECK-LABEL: arch.model @merges
// CHECK-NEXT: arch.gap_fc %x {out_features = 10, bias = false} layer "g" parts ["g", "f"] first : tensor<?x1x1x10xf32>
// CHECK-NEXT: arch.output
// MARK-LABEL: arch.model @merges
// MARK-NEXT: arch.gap %x layer "g" first
// MARK-NEXT: arch.fc %{{.*}} {out_features = 10, bias = false} layer "f" : tensor<?x1x1x10xf32>
arch.model @merges(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.gap %x layer "g"
  %1 = arch.fc %0 {out_features = 10, bias = false} layer "f" : tensor<?x1x1x10xf32>
  arch.output %1
}

// A second reader of the pool, a layer between, another pool. A mark in the wrong place goes.
// CHECK-LABEL: arch.model @others
// CHECK-NEXT: arch.gap %x first
// CHECK-NOT: arch.gap_fc
// CHECK-NOT: first
// CHECK: arch.output
arch.model @others(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.gap %x
  %1 = arch.fc %0 {out_features = 4} first
  %2 = arch.add %0, %1
  %3 = arch.gap %2
  %4 = arch.relu %3
  %5 = arch.fc %4 {out_features = 4}
  %6 = arch.avg_pool %5 {kernel = 1, stride = 1}
  %7 = arch.fc %6 {out_features = 4}
  arch.output %7
}

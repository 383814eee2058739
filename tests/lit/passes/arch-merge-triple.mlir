// RUN: trc-opt %s -p arch-merge-triple | filecheck %s

// CHECK-LABEL: arch.model @merges
// CHECK-NEXT: %[[A:.*]] = arch.cbr %x {out_channels = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true, momentum = 0.2, eps = 0.01} layer "c" parts ["c", "b", "r"] : tensor<?x4x4x8xf32>
// CHECK-NEXT: arch.cbr %[[A]] {out_channels = 8, kernel = 1, act = relu6} layer "c2" parts ["c2", "b2", "r2"]
// CHECK-NEXT: arch.output
arch.model @merges(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true} layer "c"
  %1 = arch.bn2d %0 {momentum = 0.2, eps = 0.01} layer "b"
  %2 = arch.relu %1 layer "r" : tensor<?x4x4x8xf32>
  %3 = arch.conv %2 {out_channels = 8, kernel = 1} layer "c2"
  %4 = arch.bn2d %3 layer "b2"
  %5 = arch.relu6 %4 layer "r2"
  arch.output %5
}

// Another activation.
// CHECK-LABEL: arch.model @silu
// CHECK-NEXT: arch.conv
// CHECK-NEXT: arch.bn2d
// CHECK-NEXT: arch.silu
arch.model @silu(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3}
  %1 = arch.bn2d %0
  %2 = arch.silu %1
  arch.output %2
}

// Another reader of the convolution.
// CHECK-LABEL: arch.model @conv_read
// CHECK-NOT: arch.cbr
// CHECK: arch.output
arch.model @conv_read(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.add %0, %2
  arch.output %3
}

// Another reader of the norm.
// CHECK-LABEL: arch.model @norm_read
// CHECK-NOT: arch.cbr
// CHECK: arch.output
arch.model @norm_read(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.add %1, %2
  arch.output %3
}

// A norm of vectors, one of no known kind, none at all, another order.
// CHECK-LABEL: arch.model @others
// CHECK-NOT: arch.cbr
// CHECK: arch.output
arch.model @others(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 8}
  %1 = arch.bn1d %0
  %2 = arch.relu %1
  %3 = arch.conv %2 {out_channels = 8, kernel = 1}
  %4 = arch.bn %3
  %5 = arch.relu %4
  %6 = arch.conv %5 {out_channels = 8, kernel = 1}
  %7 = arch.relu %6
  %8 = arch.bn2d %7
  %9 = arch.relu %8
  arch.output %9
}

// RUN: trc-opt %s -p 'arch-merge-quadruple{pool=true}' | filecheck %s
// RUN: trc-opt %s -p arch-merge-quadruple | filecheck %s --check-prefix=OFF
// RUN: trc-opt %s -p 'arch-merge-quadruple{pool=false}' | filecheck %s --check-prefix=OFF
// OFF-NOT: arch.cbrp

// CHECK-LABEL: arch.model @merges
// CHECK-NEXT: %[[A:.*]] = arch.cbrp %x {out_channels = 8, kernel = 3, bias = true, act = relu6, eps = 0.01, pool_kernel = 3, pool_stride = 2, pool_padding = 1} layer "c" parts ["c", "b", "r", "p"] : tensor<?x3x3x8xf32>
// CHECK-NEXT: arch.cbrp %[[A]] {out_channels = 8, kernel = 1, pool_kernel = 2, pool_stride = 1} layer "c2" parts ["c2", "b2", "r2", "p2"]
// CHECK-NEXT: arch.output
arch.model @merges(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, bias = true} layer "c"
  %1 = arch.bn2d %0 {eps = 0.01} layer "b"
  %2 = arch.relu6 %1 layer "r"
  %3 = arch.max_pool %2 {kernel = 3, stride = 2, padding = 1} layer "p" : tensor<?x3x3x8xf32>
  %4 = arch.cbr %3 {out_channels = 8, kernel = 1} layer "c2" parts ["c2", "b2", "r2"]
  %5 = arch.max_pool %4 {kernel = 2, stride = 1} layer "p2"
  arch.output %5
}

// A mean pool, no pool, a second reader before the pool, another activation.
// CHECK-LABEL: arch.model @others
// CHECK-NOT: arch.cbrp
// CHECK: arch.output
arch.model @others(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.cbr %x {out_channels = 8, kernel = 1}
  %1 = arch.avg_pool %0 {kernel = 3, stride = 2}
  %2 = arch.cbr %1 {out_channels = 8, kernel = 1}
  %3 = arch.cbr %2 {out_channels = 8, kernel = 1}
  %4 = arch.max_pool %3 {kernel = 1, stride = 1}
  %5 = arch.add %3, %4
  %6 = arch.conv %5 {out_channels = 8, kernel = 1}
  %7 = arch.bn2d %6
  %8 = arch.tanh %7
  %9 = arch.max_pool %8 {kernel = 1, stride = 1}
  arch.output %9
}

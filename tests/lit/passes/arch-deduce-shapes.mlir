// RUN: trc-opt %s -p arch-deduce-shapes | filecheck %s
// RUN: trc-opt %s -p arch-deduce-shapes,arch-deduce-shapes | filecheck %s

// CHECK-LABEL: arch.model @shapes
arch.model @shapes(%x: tensor<?x33x29x6xf32>) {
  // CHECK-NEXT: arch.conv {{.*}} : tensor<?x17x15x12xf32>
  %0 = arch.conv %x {out_channels = 12, kernel = 3, stride = 2, padding = 1}
  // CHECK-NEXT: arch.bn2d {{.*}} : tensor<?x17x15x12xf32>
  %1 = arch.bn2d %0
  // CHECK-NEXT: arch.max_pool {{.*}} : tensor<?x8x7x12xf32>
  %2 = arch.max_pool %1 {kernel = 3, stride = 2}
  // CHECK-NEXT: arch.avg_pool {{.*}} : tensor<?x7x6x12xf32>
  %3 = arch.avg_pool %2 {kernel = 2, stride = 1}
  // Channels of a depthwise convolution are written down, and a grouped one that is depthwise is marked.
  // CHECK-NEXT: arch.conv {{.*}} {out_channels = 12, kernel = 3, padding = 1, groups = 12, depthwise} : tensor<?x7x6x12xf32>
  %4 = arch.conv %3 {kernel = 3, padding = 1, depthwise}
  // CHECK-NEXT: arch.conv {{.*}} {out_channels = 12, kernel = 1, groups = 12, depthwise} : tensor<?x7x6x12xf32>
  %5 = arch.conv %4 {out_channels = 12, kernel = 1, groups = 12}
  // CHECK-NEXT: arch.conv {{.*}} {out_channels = 24, kernel = 1, groups = 12} : tensor<?x7x6x24xf32>
  %6 = arch.conv %5 {out_channels = 24, kernel = 1, groups = 12}
  // CHECK-NEXT: arch.cbr {{.*}} : tensor<?x7x6x20xf32>
  %7 = arch.cbr %6 {out_channels = 20, kernel = 1, groups = 4}
  // CHECK-NEXT: arch.cbrp {{.*}} : tensor<?x3x3x20xf32>
  %8 = arch.cbrp %7 {out_channels = 20, kernel = 3, padding = 1, pool_kernel = 2, pool_stride = 2}
  // CHECK-NEXT: arch.channel_padding {{.*}} : tensor<?x3x3x24xf32>
  %9 = arch.channel_padding %8
  // CHECK-NEXT: arch.bottleneck {{.*}} : tensor<?x2x2x32xf32>
  %10 = arch.bottleneck %9 {mid_channels = 8, out_channels = 32, stride = 2, shortcut = projection}
  // CHECK-NEXT: arch.basic_block {{.*}} : tensor<?x2x2x32xf32>
  %11 = arch.basic_block %10 {out_channels = 32}
  // CHECK-NEXT: arch.inverted_residual {{.*}} : tensor<?x2x2x40xf32>
  %12 = arch.inverted_residual %11 {expand_channels = 64, out_channels = 40}
  // CHECK-NEXT: arch.add {{.*}} : tensor<?x2x2x40xf32>
  %13 = arch.add %12, %12
  // CHECK-NEXT: arch.flatten {{.*}} : tensor<?x1x1x160xf32>
  %14 = arch.flatten %13
  // CHECK-NEXT: arch.gap {{.*}} : tensor<?x1x1x40xf32>
  %15 = arch.gap %13
  // CHECK-NEXT: arch.gap_fc {{.*}} : tensor<?x1x1x160xf32>
  %16 = arch.gap_fc %13 {out_features = 160}
  // CHECK-NEXT: arch.add {{.*}} : tensor<?x1x1x160xf32>
  %17 = arch.add %16, %14
  // CHECK-NEXT: arch.fc {{.*}} : tensor<?x1x1x10xf32>
  %18 = arch.fc %17 {out_features = 10}
  // CHECK-NEXT: arch.softmax_ce {{.*}} : tensor<?x1x1x10xf32>
  %19 = arch.softmax_ce %18 {num_classes = 10}
  arch.output %19
}

// The loss may follow a map with as many numbers as there are classes; a flatten comes in a later step.
// CHECK-LABEL: arch.model @map
arch.model @map(%x: tensor<?x4x4x8xf32>) {
  %0 = arch.avg_pool %x {kernel = 2, stride = 2}
  // CHECK: arch.softmax_ce {{.*}} : tensor<?x2x2x8xf32>
  %1 = arch.softmax_ce %0 {num_classes = 32}
  arch.output %1
}

// Every layer, with its defaults left out and with all its parameters: own and generic text read back.
// RUN: trc-opt %s | trc-opt | filecheck %s
// RUN: trc-opt %s --print-op-generic | trc-opt | filecheck %s

// CHECK: arch.model @layers(%x: tensor<?x32x32x8xf32>) {
arch.model @layers(%x: tensor<?x32x32x8xf32>) {
  // CHECK-NEXT: arch.conv %x {out_channels = 16, kernel = 3} layer "conv1" first : tensor<?x30x30x16xf32>
  %0 = arch.conv %x {out_channels = 16, kernel = 3} layer "conv1" first : tensor<?x30x30x16xf32>
  // CHECK-NEXT: arch.conv %{{.*}} {out_channels = 16, kernel = 3, stride = 2, padding = 1, groups = 4, bias = true}
  %1 = arch.conv %0 {bias = true, groups = 4, padding = 1, stride = 2, kernel = 3, out_channels = 16}
  // CHECK-NEXT: arch.conv %{{.*}} {kernel = 5, padding = 2, depthwise}
  %2 = arch.conv %1 {kernel = 5, padding = 2, depthwise, stride = 1}
  // CHECK-NEXT: arch.bn %{{[0-9a-z]+$}}
  %3 = arch.bn %2 {momentum = 0.1, eps = 0.00001}
  // CHECK-NEXT: arch.bn1d %{{.*}} {momentum = 0.3, eps = 0.001} layer "stem.bn1"
  %4 = arch.bn1d %3 {momentum = 0.3, eps = 1.0e-3} layer "stem.bn1"
  // CHECK-NEXT: arch.bn2d %{{.*}} {eps = 2.5e-07}
  %5 = arch.bn2d %4 {eps = 2.5e-7}
  // CHECK-NEXT: arch.relu %{{.*}} layer "relu1"
  %6 = arch.relu %5 layer "relu1"
  // CHECK-NEXT: arch.tanh
  %7 = arch.tanh %6
  // CHECK-NEXT: arch.silu
  %8 = arch.silu %7
  // CHECK-NEXT: arch.relu6
  %9 = arch.relu6 %8
  // CHECK-NEXT: arch.leaky_relu %{{[0-9a-z]+$}}
  %10 = arch.leaky_relu %9
  // CHECK-NEXT: arch.leaky_relu %{{.*}} {slope = 0.2}
  %11 = arch.leaky_relu %10 {slope = 0.2}
  // CHECK-NEXT: arch.hardswish
  %12 = arch.hardswish %11
  // CHECK-NEXT: arch.elu %{{[0-9a-z]+$}}
  %13 = arch.elu %12 {alpha = 1}
  // CHECK-NEXT: arch.elu %{{.*}} {alpha = 0.5}
  %14 = arch.elu %13 {alpha = 0.5}
  // CHECK-NEXT: arch.sigmoid
  %15 = arch.sigmoid %14
  // CHECK-NEXT: arch.dropout %{{[0-9a-z]+$}}
  %16 = arch.dropout %15
  // CHECK-NEXT: arch.dropout %{{.*}} {p = 0.0}
  %17 = arch.dropout %16 {p = 0.0}
  // CHECK-NEXT: arch.identity
  %18 = arch.identity %17
  // CHECK-NEXT: arch.channel_padding
  %19 = arch.channel_padding %18
  // CHECK-NEXT: arch.max_pool %{{.*}} {kernel = 2, stride = 2}
  %20 = arch.max_pool %19 {kernel = 2, stride = 2}
  // CHECK-NEXT: arch.avg_pool %{{.*}} {kernel = 3, stride = 1, padding = 1}
  %21 = arch.avg_pool %20 {kernel = 3, stride = 1, padding = 1}
  // CHECK-NEXT: arch.add %[[A:.*]], %{{.*}} layer "add1"
  %22 = arch.add %20, %21 layer "add1"
  // CHECK-NEXT: arch.cbr %{{.*}} {out_channels = 24, kernel = 1}
  %23 = arch.cbr %22 {out_channels = 24, kernel = 1}
  // CHECK-NEXT: arch.cbr %{{.*}} {out_channels = 24, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true, act = relu6, momentum = 0.2, eps = 0.1} layer "conv9" parts ["conv9", "bn9", "relu6_2"]
  %24 = arch.cbr %23 {out_channels = 24, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true, act = relu6, momentum = 0.2, eps = 0.1} layer "conv9" parts ["conv9", "bn9", "relu6_2"]
  // CHECK-NEXT: arch.cbrp %{{.*}} {out_channels = 24, kernel = 3, act = relu6, pool_kernel = 3, pool_stride = 2, pool_padding = 1}
  %25 = arch.cbrp %24 {out_channels = 24, kernel = 3, act = relu6, pool_kernel = 3, pool_stride = 2, pool_padding = 1}
  // CHECK-NEXT: arch.bottleneck %{{.*}} {mid_channels = 8, out_channels = 24}
  %26 = arch.bottleneck %25 {mid_channels = 8, out_channels = 24, shortcut = identity}
  // CHECK-NEXT: arch.basic_block %{{.*}} {out_channels = 48, stride = 2, shortcut = projection, act = relu6, momentum = 0.2, eps = 0.5}
  %27 = arch.basic_block %26 {out_channels = 48, stride = 2, shortcut = projection, act = relu6, momentum = 0.2, eps = 0.5}
  // CHECK-NEXT: arch.inverted_residual %{{.*}} {out_channels = 24}
  %28 = arch.inverted_residual %27 {out_channels = 24, shortcut = none, act = relu6}
  // CHECK-NEXT: arch.inverted_residual %{{.*}} {expand_channels = 96, out_channels = 24, shortcut = identity, act = relu}
  %29 = arch.inverted_residual %28 {expand_channels = 96, out_channels = 24, shortcut = identity, act = relu}
  // CHECK-NEXT: arch.gap_fc %{{.*}} {out_features = 10, bias = false} layer "gap1" parts ["gap1", "fc1"] : tensor<?x1x1x10xf32>
  %30 = arch.gap_fc %29 {out_features = 10, bias = false} layer "gap1" parts ["gap1", "fc1"] : tensor<?x1x1x10xf32>
  // CHECK-NEXT: arch.gap %{{.*}} : tensor<?x1x1x10xf32>
  %31 = arch.gap %30 : tensor<?x1x1x10xf32>
  // CHECK-NEXT: arch.flatten
  %32 = arch.flatten %31 : tensor<?x1x1x10xf32>
  // CHECK-NEXT: arch.fc %{{.*}} {out_features = 10} layer "fc2"
  %33 = arch.fc %32 {out_features = 10, bias = true} layer "fc2" attributes {note = "kept"}
  // CHECK-SAME: attributes {note = "kept"}
  // CHECK-NEXT: arch.softmax_ce %{{.*}} {num_classes = 10}
  %34 = arch.softmax_ce %33 {num_classes = 10}
  // CHECK-NEXT: arch.softmax_ce %{{.*}} {num_classes = 10, label_smoothing = 0.1} layer "softmax_ce"
  %35 = arch.softmax_ce %34 {num_classes = 10, label_smoothing = 0.1} layer "softmax_ce"
  // CHECK-NEXT: arch.output %{{[0-9a-z]+$}}
  arch.output %35
}

// RUN: trc-opt %s --pass-pipeline='builtin.module(arch-expand-tree)' | filecheck %s
// RUN: trc-opt %s --pass-pipeline='builtin.module(arch-expand-tree{fuse=false})' | filecheck %s
// RUN: trc-opt %s -p 'arch-expand-tree{fuse=true}' | filecheck %s --check-prefix=FUSE
// RUN: trc-opt %s -p 'arch-expand-tree,arch-expand-tree' | filecheck %s

// Numbers run per kind; a given name takes the place of its number; a container's name is a prefix.
// CHECK-LABEL: arch.model @names
// CHECK-NEXT: arch.fc %{{.*}} layer "fc1"
// CHECK-NEXT: arch.relu %{{.*}} layer "relu1"
// CHECK-NEXT: arch.fc %{{.*}} layer "wide"
// CHECK-NEXT: arch.relu6 %{{.*}} layer "relu6_1"
// CHECK-NEXT: arch.fc %{{.*}} layer "head.fc3"
// CHECK-NEXT: arch.bn %{{.*}} layer "head.norm"
// CHECK-NEXT: arch.bn1d %{{.*}} layer "head.inner.bn2"
// CHECK-NEXT: arch.output
arch.model @names(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.seq %x (%a) {
    %1 = arch.fc %a {out_features = 8}
    %2 = arch.relu %1
    %3 = arch.fc %2 {out_features = 8} layer "wide"
    %4 = arch.relu6 %3
    arch.yield %4
  }
  %5 = arch.seq %0 layer "head" (%a) {
    %6 = arch.fc %a {out_features = 8}
    %7 = arch.bn %6 layer "norm"
    %8 = arch.seq %7 layer "inner" (%b) {
      %9 = arch.bn1d %b
      arch.yield %9
    }
    arch.yield %8
  }
  arch.output %5
}

// A named repetition tells the turns of given names apart.
// CHECK-LABEL: arch.model @turns
// CHECK-NEXT: arch.tanh %{{.*}} layer "tanh1"
// CHECK-NEXT: arch.tanh %{{.*}} layer "tanh2"
// CHECK-NEXT: arch.silu %{{.*}} layer "r.silu1"
// CHECK-NEXT: arch.elu %{{.*}} layer "r.1.e"
// CHECK-NEXT: arch.silu %{{.*}} layer "r.silu2"
// CHECK-NEXT: arch.elu %{{.*}} layer "r.2.e"
// CHECK-NEXT: arch.sigmoid %{{.*}} layer "once.s"
// CHECK-NEXT: arch.output
arch.model @turns(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.repeat %x {times = 2} (%a) {
    %1 = arch.tanh %a
    arch.yield %1
  }
  %2 = arch.repeat %0 {times = 2} layer "r" (%a) {
    %3 = arch.silu %a
    %4 = arch.elu %3 layer "e"
    arch.yield %4
  }
  %5 = arch.repeat %2 {times = 1} layer "once" (%a) {
    %6 = arch.sigmoid %a layer "s"
    arch.yield %6
  }
  arch.output %5
}

// The shortcut comes first; the sum is a layer too.
// CHECK-LABEL: arch.model @sum(%x:
// CHECK-NEXT: %[[S:.*]] = arch.conv %x {{.*}} layer "block.conv1"
// CHECK-NEXT: %[[T:.*]] = arch.conv %x {{.*}} layer "block.conv2"
// CHECK-NEXT: arch.add %[[S]], %[[T]] layer "block.add1"
arch.model @sum(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.add2 %x layer "block" shortcut (%a) {
    %1 = arch.conv %a {out_channels = 4, kernel = 1}
    arch.yield %1
  } stem (%a) {
    %1 = arch.conv %a {out_channels = 4, kernel = 1}
    arch.yield %1
  }
  arch.output %0
}

// Macros: with fuse only conv-bn-relu stays whole; its name is a prefix.
// CHECK-LABEL: arch.model @macros
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true} layer "c.conv1"
// CHECK-NEXT: arch.bn %{{.*}} {momentum = 0.2, eps = 0.01} layer "c.bn1"
// CHECK-NEXT: arch.relu6 %{{.*}} layer "c.relu6_1"
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 1} layer "conv2"
// CHECK-NEXT: arch.bn %{{.*}} layer "bn2"
// CHECK-NEXT: arch.relu %{{.*}} layer "relu1"
// CHECK-NEXT: arch.max_pool %{{.*}} {kernel = 3, stride = 2, padding = 1} layer "max_pool1"
// CHECK-NEXT: arch.gap %{{.*}} layer "gap1"
// CHECK-NEXT: arch.fc %{{.*}} {out_features = 10, bias = false} layer "fc1"
// FUSE-LABEL: arch.model @macros
// FUSE-NEXT: arch.cbr %{{.*}} {out_channels = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true, act = relu6, momentum = 0.2, eps = 0.01} layer "c.conv1" parts ["c.conv1", "c.bn1", "c.relu6_1"]
// FUSE-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 1} layer "conv2"
// FUSE-NEXT: arch.bn
// FUSE-NEXT: arch.relu
// FUSE-NEXT: arch.max_pool
// FUSE-NEXT: arch.gap
// FUSE-NEXT: arch.fc
arch.model @macros(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.cbr %x {out_channels = 8, kernel = 3, stride = 2, padding = 1, groups = 2, bias = true, act = relu6, momentum = 0.2, eps = 0.01} layer "c"
  %1 = arch.cbrp %0 {out_channels = 8, kernel = 1, pool_kernel = 3, pool_stride = 2, pool_padding = 1}
  %2 = arch.gap_fc %1 {out_features = 10, bias = false}
  arch.output %2
}

// Blocks: the shortcut is an identity where channels and size stay, a projection elsewhere.
// CHECK-LABEL: arch.model @bottleneck
// CHECK-NEXT: arch.identity %{{.*}} layer "identity1"
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 2, kernel = 1} layer "conv1"
// CHECK: arch.conv %{{.*}} {out_channels = 2, kernel = 3, padding = 1} layer "conv2"
// CHECK: arch.conv %{{.*}} {out_channels = 4, kernel = 1} layer "conv3"
// CHECK-NEXT: arch.bn %{{.*}} layer "bn3"
// CHECK-NEXT: arch.add %{{.*}} layer "add1"
// CHECK-NEXT: arch.relu %{{.*}} layer "relu3"
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 4, kernel = 1, stride = 2} layer "conv4"
// CHECK-NEXT: arch.bn %{{.*}} layer "bn4"
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 2, kernel = 1} layer "conv5"
// CHECK: arch.conv %{{.*}} {out_channels = 2, kernel = 3, stride = 2, padding = 1} layer "conv6"
// FUSE-LABEL: arch.model @bottleneck
// FUSE-NEXT: arch.bottleneck %{{.*}} {mid_channels = 2, out_channels = 4} layer "conv1" parts ["conv1", "bn1", "relu1", "conv2", "bn2", "relu2", "conv3", "bn3", "add1", "relu3"]
// FUSE-NEXT: arch.bottleneck %{{.*}} {mid_channels = 2, out_channels = 4, stride = 2, shortcut = projection} layer "conv4" parts ["conv4", "bn4", "conv5",
arch.model @bottleneck(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.block %x {style = RESNET_1_3_1, mid = 2, out = 4}
  %1 = arch.block %0 {style = RESNET_1_3_1_DS, mid = 2, out = 4}
  arch.output %1
}

// CHECK-LABEL: arch.model @basic
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 1} layer "b.conv1"
// CHECK-NEXT: arch.bn %{{.*}} layer "b.bn1"
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 3, padding = 1} layer "b.conv2"
// CHECK: arch.conv %{{.*}} {out_channels = 8, kernel = 3, padding = 1} layer "b.conv3"
// FUSE-LABEL: arch.model @basic
// FUSE-NEXT: arch.basic_block %{{.*}} {out_channels = 8, shortcut = projection} layer "b.conv1" parts ["b.conv1",
// FUSE-NEXT: arch.basic_block %{{.*}} {out_channels = 8, stride = 2, shortcut = projection} layer "conv4"
arch.model @basic(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.block %x {style = RESNET_3_3, out = 8} layer "b"
  %1 = arch.block %0 {style = RESNET_3_3_DS, out = 8}
  arch.output %1
}

// MobileNetV2: depthwise, relu6, nothing to widen at ratio 1, no sum unless the shape stays.
// CHECK-LABEL: arch.model @mobile
// CHECK-NEXT: arch.conv %{{.*}} {kernel = 3, padding = 1, depthwise} layer "conv1"
// CHECK-NEXT: arch.bn
// CHECK-NEXT: arch.relu6
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 1} layer "conv2"
// CHECK-NEXT: arch.bn
// CHECK-NEXT: arch.identity
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 48, kernel = 1} layer "conv3"
// CHECK-NEXT: arch.bn
// CHECK-NEXT: arch.relu6
// CHECK-NEXT: arch.conv %{{.*}} {kernel = 3, padding = 1, depthwise} layer "conv4"
// CHECK-NEXT: arch.bn
// CHECK-NEXT: arch.relu6
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 8, kernel = 1} layer "conv5"
// CHECK-NEXT: arch.bn
// CHECK-NEXT: arch.add
// CHECK-NEXT: arch.conv %{{.*}} {out_channels = 48, kernel = 1} layer "conv6"
// CHECK: arch.conv %{{.*}} {kernel = 3, stride = 2, padding = 1, depthwise} layer "conv7"
// CHECK-NOT: arch.add
// FUSE-LABEL: arch.model @mobile
// FUSE-NEXT: arch.inverted_residual %{{.*}} {out_channels = 8} layer "conv1"
// FUSE-NEXT: arch.inverted_residual %{{.*}} {expand_channels = 48, out_channels = 8, shortcut = identity} layer "conv3"
// FUSE-NEXT: arch.inverted_residual %{{.*}} {expand_channels = 48, out_channels = 8, stride = 2} layer "conv6"
// FUSE-NEXT: arch.inverted_residual %{{.*}} {out_channels = 8, stride = 2} layer "conv9"
arch.model @mobile(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.block %x {style = MB_E1_K3, out = 8}
  %1 = arch.block %0 {style = MB_E6_K3, out = 8}
  %2 = arch.block %1 {style = MB_E6_K3_DS, out = 8}
  %3 = arch.block %2 {style = MB_E1_K3_DS, out = 8}
  arch.output %3
}

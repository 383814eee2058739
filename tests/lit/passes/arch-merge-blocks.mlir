// RUN: trc-opt %s -p arch-deduce-shapes,arch-merge-blocks | filecheck %s
// RUN: trc-opt %s -p arch-deduce-shapes,arch-merge-blocks,arch-merge-blocks | filecheck %s

// The names of the parts: shortcut, stem, sum, activation; an identity is none.
// CHECK-LABEL: arch.model @bottleneck
// CHECK-NEXT: %[[A:.*]] = arch.bottleneck %x {mid_channels = 4, out_channels = 8, momentum = 0.2} layer "c1" parts ["c1", "b1", "r1", "c2", "b2", "r2", "c3", "b3", "a1", "r3"] : tensor<?x8x8x8xf32>
// CHECK-NEXT: arch.bottleneck %[[A]] {mid_channels = 4, out_channels = 16, stride = 2, shortcut = projection, act = relu6} layer "p1" parts ["p1", "n1", "c4", "b4", "r4", "c5", "b5", "r5", "c6", "b6", "a2", "r6"] : tensor<?x4x4x16xf32>
// CHECK-NEXT: arch.output
arch.model @bottleneck(%x: tensor<?x8x8x8xf32>) {
  %i = arch.identity %x layer "i"
  %0 = arch.conv %x {out_channels = 4, kernel = 1} layer "c1"
  %1 = arch.bn2d %0 {momentum = 0.2} layer "b1"
  %2 = arch.relu %1 layer "r1"
  %3 = arch.conv %2 {out_channels = 4, kernel = 3, padding = 1} layer "c2"
  %4 = arch.bn2d %3 {momentum = 0.2} layer "b2"
  %5 = arch.relu %4 layer "r2"
  %6 = arch.conv %5 {out_channels = 8, kernel = 1} layer "c3"
  %7 = arch.bn2d %6 {momentum = 0.2} layer "b3"
  %8 = arch.add %i, %7 layer "a1"
  %9 = arch.relu %8 layer "r3"
  // Written with merged layers in the stem, and the shortcut on the other side.
  %10 = arch.cbr %9 {out_channels = 4, kernel = 1, act = relu6} layer "c4" parts ["c4", "b4", "r4"]
  %11 = arch.cbr %10 {out_channels = 4, kernel = 3, stride = 2, padding = 1, act = relu6} layer "c5" parts ["c5", "b5", "r5"]
  %12 = arch.conv %11 {out_channels = 16, kernel = 1} layer "c6"
  %13 = arch.bn2d %12 layer "b6"
  %14 = arch.conv %9 {out_channels = 16, kernel = 1, stride = 2} layer "p1"
  %15 = arch.bn2d %14 layer "n1"
  %16 = arch.add %13, %15 layer "a2"
  %17 = arch.relu6 %16 layer "r6"
  arch.output %17
}

// CHECK-LABEL: arch.model @basic
// CHECK-NEXT: %[[A:.*]] = arch.basic_block %x {out_channels = 16, stride = 2, shortcut = projection} layer "p" parts ["p", "n", "c1", "b1", "r1", "c2", "b2", "a", "r"]
// CHECK-NEXT: arch.basic_block %[[A]] {out_channels = 16} layer "c3"
// CHECK-NEXT: arch.output
arch.model @basic(%x: tensor<?x8x8x8xf32>) {
  %0 = arch.conv %x {out_channels = 16, kernel = 1, stride = 2} layer "p"
  %1 = arch.bn2d %0 layer "n"
  %2 = arch.conv %x {out_channels = 16, kernel = 3, stride = 2, padding = 1} layer "c1"
  %3 = arch.bn2d %2 layer "b1"
  %4 = arch.relu %3 layer "r1"
  %5 = arch.conv %4 {out_channels = 16, kernel = 3, padding = 1} layer "c2"
  %6 = arch.bn2d %5 layer "b2"
  %7 = arch.add %1, %6 layer "a"
  %8 = arch.relu %7 layer "r"
  // No identity on the shortcut: the value itself.
  %9 = arch.conv %8 {out_channels = 16, kernel = 3, padding = 1} layer "c3"
  %10 = arch.bn2d %9
  %11 = arch.relu %10
  %12 = arch.conv %11 {out_channels = 16, kernel = 3, padding = 1}
  %13 = arch.bn2d %12
  %14 = arch.add %8, %13
  %15 = arch.relu %14
  arch.output %15
}

// CHECK-LABEL: arch.model @mobile
// CHECK-NEXT: %[[A:.*]] = arch.inverted_residual %x {out_channels = 8, shortcut = identity} layer "c1" parts ["c1", "b1", "r1", "c2", "b2", "a1"]
// CHECK-NEXT: %[[B:.*]] = arch.inverted_residual %[[A]] {expand_channels = 48, out_channels = 16, stride = 2} layer "c3" parts ["c3", "b3", "r3", "c4", "b4", "r4", "c5", "b5"] : tensor<?x4x4x16xf32>
// CHECK-NEXT: arch.inverted_residual %[[B]] {expand_channels = 32, out_channels = 24} layer "c6" parts ["c6", "b6", "r6", "c7", "b7", "r7", "c8", "b8"]
// CHECK-NEXT: arch.output
arch.model @mobile(%x: tensor<?x8x8x8xf32>) {
  %0 = arch.conv %x {kernel = 3, padding = 1, depthwise} layer "c1"
  %1 = arch.bn2d %0 layer "b1"
  %2 = arch.relu6 %1 layer "r1"
  %3 = arch.conv %2 {out_channels = 8, kernel = 1} layer "c2"
  %4 = arch.bn2d %3 layer "b2"
  %5 = arch.add %x, %4 layer "a1"
  %6 = arch.conv %5 {out_channels = 48, kernel = 1} layer "c3"
  %7 = arch.bn2d %6 layer "b3"
  %8 = arch.relu6 %7 layer "r3"
  // A grouped convolution with one channel a group is depthwise.
  %9 = arch.cbr %8 {out_channels = 48, kernel = 3, stride = 2, padding = 1, groups = 48, act = relu6} layer "c4" parts ["c4", "b4", "r4"]
  %10 = arch.conv %9 {out_channels = 16, kernel = 1} layer "c5"
  %11 = arch.bn2d %10 layer "b5"
  // A block without a first convolution takes up the one before it, as if both had been written out.
  %12 = arch.cbr %11 {out_channels = 32, kernel = 1, act = relu6} layer "c6" parts ["c6", "b6", "r6"]
  %13 = arch.inverted_residual %12 {out_channels = 24} layer "c7" parts ["c7", "b7", "r7", "c8", "b8"]
  arch.output %13
}

// A block that is no ResNet block because its shortcut does more may still hold one without sum in its stem.
// CHECK-LABEL: arch.model @inside
// CHECK-NEXT: arch.tanh
// CHECK-NEXT: arch.inverted_residual %x {out_channels = 8} layer "c1"
// CHECK-NEXT: arch.add
arch.model @inside(%x: tensor<?x8x8x8xf32>) {
  %t = arch.tanh %x
  %0 = arch.conv %x {kernel = 3, padding = 1, depthwise} layer "c1"
  %1 = arch.bn2d %0 layer "b1"
  %2 = arch.relu6 %1 layer "r1"
  %3 = arch.conv %2 {out_channels = 8, kernel = 1} layer "c2"
  %4 = arch.bn2d %3 layer "b2"
  %5 = arch.add %t, %4 layer "a1"
  arch.output %5
}

// No activation after the sum: not ResNet's block.
// CHECK-LABEL: arch.model @no_activation
// CHECK-NOT: arch.basic_block
// CHECK: arch.add
// CHECK-NEXT: arch.output
arch.model @no_activation(%x: tensor<?x8x8x8xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.conv %2 {out_channels = 8, kernel = 3, padding = 1}
  %4 = arch.bn2d %3
  %5 = arch.add %x, %4
  arch.output %5
}

// Another reader of a value inside.
// CHECK-LABEL: arch.model @read_inside
// CHECK-NOT: arch.basic_block
// CHECK: arch.output
arch.model @read_inside(%x: tensor<?x8x8x8xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.conv %2 {out_channels = 8, kernel = 3, padding = 1}
  %4 = arch.bn2d %3
  %5 = arch.add %x, %4
  %6 = arch.relu %5
  %7 = arch.add %2, %6
  arch.output %7
}

// One norm has other parameters.
// CHECK-LABEL: arch.model @norms
// CHECK-NOT: arch.basic_block
// CHECK: arch.output
arch.model @norms(%x: tensor<?x8x8x8xf32>) {
  %0 = arch.conv %x {out_channels = 8, kernel = 3, padding = 1}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.conv %2 {out_channels = 8, kernel = 3, padding = 1}
  %4 = arch.bn2d %3 {eps = 0.001}
  %5 = arch.add %x, %4
  %6 = arch.relu %5
  arch.output %6
}

// A stem that is longer than the block.
// CHECK-LABEL: arch.model @longer
// CHECK-NOT: arch.basic_block
// CHECK: arch.output
arch.model @longer(%x: tensor<?x8x8x8xf32>) {
  %t = arch.tanh %x
  %0 = arch.conv %t {out_channels = 8, kernel = 3, padding = 1}
  %1 = arch.bn2d %0
  %2 = arch.relu %1
  %3 = arch.conv %2 {out_channels = 8, kernel = 3, padding = 1}
  %4 = arch.bn2d %3
  %5 = arch.add %x, %4
  %6 = arch.relu %5
  arch.output %6
}

// RUN: trc-opt %s -p arch-rename-bn | filecheck %s

// CHECK-LABEL: arch.model @kinds
arch.model @kinds(%x: tensor<?x8x8x4xf32>) {
  // CHECK-NEXT: arch.bn2d %{{.*}} layer "input"
  %0 = arch.bn %x layer "input"
  %1 = arch.conv %0 {out_channels = 4, kernel = 1}
  // CHECK: arch.bn2d %{{.*}} {momentum = 0.2, eps = 0.01} layer "conv"
  %2 = arch.bn %1 {momentum = 0.2, eps = 0.01} layer "conv"
  // CHECK-NEXT: arch.bn2d %{{.*}} layer "bn"
  %3 = arch.bn %2 layer "bn"
  // A wrong name in the input is corrected.
  // CHECK-NEXT: arch.bn2d %{{.*}} layer "wrong"
  %4 = arch.bn1d %3 layer "wrong"
  %5 = arch.gap %4
  // CHECK: arch.bn1d %{{.*}} layer "gap"
  %6 = arch.bn %5 layer "gap"
  %7 = arch.fc %6 {out_features = 8}
  // All activations, dropout, identity and channel padding are looked through.
  %8 = arch.silu %7
  %9 = arch.dropout %8
  %10 = arch.identity %9
  %11 = arch.channel_padding %10
  %12 = arch.leaky_relu %11
  // CHECK: arch.bn1d %{{.*}} layer "fc"
  %13 = arch.bn2d %12 layer "fc"
  %14 = arch.add %12, %13
  // CHECK: arch.bn1d %{{.*}} layer "sum"
  %15 = arch.bn %14 layer "sum"
  arch.output %15
}

// CHECK-LABEL: arch.model @flat
arch.model @flat(%x: tensor<?x8x8x4xf32>) {
  %0 = arch.flatten %x
  // CHECK: arch.bn1d
  %1 = arch.bn %0
  arch.output %1
}

// CHECK-LABEL: arch.model @vector
arch.model @vector(%x: tensor<?x1x1x4xf32>) {
  // CHECK: arch.bn1d
  %0 = arch.bn %x
  arch.output %0
}
